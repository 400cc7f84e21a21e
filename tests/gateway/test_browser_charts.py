"""The charts of the live page in a headless Chromium: their time, their columns, and where their rows come from."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from .browsing import looking, serving


def drag(page: Page, chart: int, pixels: int) -> None:
    box = page.locator("#charts figure > div").nth(chart).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + pixels, y, steps=4)
    page.mouse.up()


def shown(page: Page) -> list[str]:
    """The start and end of what the charts show."""
    found = re.match(r"([\d:.]+) to ([\d:.]+)", page.locator("#view-said").text_content() or "")
    assert found
    return [found[1], found[2]]


def test_charts_are_paused_moved_and_zoomed_together_while_data_goes_on(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=20") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        pause = page.locator("#view-pause")
        expect(page.locator("#charts canvas")).to_have_count(3)
        expect(pause).to_have_text("Pause")
        page.wait_for_function("Number.parseFloat(document.querySelector('#view-span option').textContent) >= 2")
        page.locator("#charts").hover()
        page.keyboard.press("Space")
        expect(pause).to_have_text("Back to live")
        before = shown(page)
        expect(page.locator("#view-said")).to_contain_text("behind")
        assert shown(page) == before
        drag(page, 0, 100)
        moved = shown(page)
        assert moved[0] < before[0] and moved[1] < before[1]
        # The axes are linked: a wheel over any of them zooms all of them, and the place under the pointer stays.
        page.mouse.wheel(0, -600)
        page.wait_for_function(
            "seen => !document.querySelector('#view-said').textContent.startsWith(seen)", arg=moved[0]
        )
        zoomed = shown(page)
        assert moved[0] < zoomed[0] < zoomed[1] < moved[1]
        values = page.locator("#charts figcaption b")
        at_pointer = values.all_text_contents()
        assert len(at_pointer) == 3 and all(re.fullmatch(r"[\d.]+", each) for each in at_pointer)
        page.locator("#charts figure > div").first.focus()
        page.keyboard.press("-")
        page.keyboard.press("ArrowRight")
        pause.click()
        expect(pause).to_have_text("Pause")
        expect(page.locator("#view-said")).to_be_empty()


def test_rows_that_are_not_drawn_are_said(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=2000") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        expect(page.locator("#view-said")).to_have_text(re.compile(r"^\d+ rows are not drawn: they came too fast\.$"))
