"""The charts of the live page in a headless Chromium: their time, their columns, and where their rows come from."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import httpx
import pyarrow.parquet as pq
from playwright.sync_api import Browser, Page, expect

from fastflight.app.compose import open_server
from fastflight.client import FastFlightClient
from tests.support.servers import config

from .browsing import looking, serving
from .speaking_device import Speaker


def drag(page: Page, chart: int, pixels: int) -> None:
    box = page.locator("#charts figure > div").nth(chart).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + pixels, y, steps=4)
    page.mouse.up()


def shown(page: Page) -> list[str]:
    """The start and end of what the charts show, once they are drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = re.match(r"([\d:]+(?:\.\d+)?) to ([\d:]+(?:\.\d+)?)", page.locator("#view-said").text_content() or "")
    assert found
    return [found[1], found[2]]


def test_charts_are_paused_moved_and_zoomed_together_while_data_goes_on(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=20") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        pause = page.locator("#view-pause")
        expect(page.locator("#charts canvas")).to_have_count(3)
        expect(pause).to_have_text("Pause")
        page.wait_for_function("() => Number.parseFloat(document.querySelector('#view-span option').textContent) >= 2")
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
        while (zoomed := shown(page)) == moved:
            page.mouse.wheel(0, -600)
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


def test_older_rows_come_from_the_recording_and_a_link_shows_the_same(browser: Browser, tmp_path: Path) -> None:
    """A server that was there before has recorded two rows, of which one is a spike; none are in memory."""
    settings = {"record": ["tank"], "recordings": {"folder": tmp_path}, "http": ("127.0.0.1", 0)}
    with ExitStack() as stack:
        speaker = stack.enter_context(Speaker(b'{"level": 1.5, "height": 700}\n'))
        devices = {"tank": speaker.url, "bare": "sim:?telemetry=5"}
        with open_server(config(devices, **settings)) as running, FastFlightClient(running.location) as client:
            with client.session("tank", limit_rows=3) as rows:
                assert sum(batch.num_rows for batch in rows) == 3
            speaker.line = b'{"level": 99.5, "height": 700}\n'
            with client.session("tank", limit_rows=9) as rows:
                assert sum(batch.num_rows for batch in rows) == 9
        speaker.line = b'{"level": 1.5, "height": 700}\n'
        running = stack.enter_context(open_server(config(devices, **settings)))
        page = stack.enter_context(looking(browser, f"{running.http}/#/tank/live"))
        level = page.locator("#charts figcaption b").first
        expect(level).to_have_text("1.5")
        page.locator("#view-span").select_option("300000")
        page.locator("#view-pause").click()
        page.wait_for_url(re.compile("from=.*&to="))
        expect(page.locator("#view-said")).not_to_contain_text("Reading older rows")
        query = "select epoch_ms(time) as time from tank.rows where level > 50"
        answer = httpx.post(f"{running.http}/sql?format=jsonl", content=query, timeout=60)
        spikes = [json.loads(line)["time"] for line in answer.text.splitlines()]
        start, end = (int(number) for number in re.findall(r"\d{9,}", page.url))
        assert len(spikes) < (end - start) / 1000  # they are in one or two pixels
        box = page.locator("#charts figure > div").first.bounding_box()
        assert box is not None
        left, right = 58, 12  # the room of the axis
        x = left + (spikes[len(spikes) // 2] - start) / (end - start) * (box["width"] - left - right)
        page.mouse.move(box["x"] + x, box["y"] + 40)
        expect(level).to_contain_text("99.5")
        other = stack.enter_context(looking(browser, page.url))
        expect(other.locator("#view-said")).to_have_text(re.compile(f"^{' to '.join(shown(page))}"))
        expect(other.locator("#view-said")).not_to_contain_text("Reading older rows")
        other.goto(f"{running.http}/#/bare/live?span=300000")
        expect(other.locator("#view-said")).to_have_text(re.compile(r"^Nothing from before .*: it is not recorded\.$"))


def test_a_chart_shows_columns_of_several_boards_and_is_saved(browser: Browser, tmp_path: Path) -> None:
    settings = {"record": ["demo", "lab-2"], "recordings": {"folder": tmp_path}, "http": ("127.0.0.1", 0)}
    devices = {"demo": "sim:?telemetry=20", "lab-2": "sim:?telemetry=10"}
    with open_server(config(devices, **settings)) as running, looking(browser, f"{running.http}/#/demo/live") as page:
        page.get_by_role("button", name="Menu of the chart temperature").click()
        page.get_by_role("checkbox", name="humidity").check()
        page.locator("#chart-device").select_option("lab-2")
        page.get_by_role("checkbox", name="temperature").check()
        names = page.locator("#charts figcaption").first.locator("span")
        expect(names).to_have_text(["temperature", "humidity", "lab-2 temperature"])
        for kind in ("png", "csv", "parquet"):
            with page.expect_download() as downloading:
                page.locator(f"#chart-{kind}").click()
            assert downloading.value.suggested_filename == f"temperature-humidity-lab-2-temperature.{kind}"
            downloading.value.save_as(tmp_path / f"saved.{kind}")
        assert (tmp_path / "saved.png").read_bytes()[:4] == b"\x89PNG"
        table = pq.read_table(tmp_path / "saved.parquet")
        assert table.column_names == ["device", "time", "temperature", "humidity"]
        assert {"demo", "lab-2"} == set(table["device"].to_pylist())
        assert (tmp_path / "saved.csv").read_text().splitlines()[0] == "device,time,temperature,humidity"
        page.locator("#chart-close").click()
        page.get_by_role("button", name="Menu of the chart humidity").click()
        page.locator("#chart-against").select_option(label="temperature")
        page.locator("#chart-close").click()
        expect(page.locator("#charts figcaption").nth(1)).to_have_text(
            re.compile(r"^humidity against temperature[\d.]+ at [\d.]+$")
        )
        page.wait_for_url(re.compile("charts=temperature,humidity,lab-2:temperature;humidity@temperature;battery$"))
        with looking(browser, page.url) as other:
            expect(other.locator("#charts figcaption").nth(1)).to_contain_text("humidity against temperature")


def test_a_traceback_is_a_mark_whose_text_is_shown_also_from_the_recording(browser: Browser, tmp_path: Path) -> None:
    settings = {"record": ["tank"], "recordings": {"folder": tmp_path}, "http": ("127.0.0.1", 0)}
    said = b'Traceback (most recent call last):\n  File "<b>", line 7, in <module>\nValueError: no sensor\n'
    with Speaker(said) as speaker:
        with open_server(config({"tank": speaker.url}, **settings)) as running:
            with looking(browser, f"{running.http}/") as page:
                page.locator("#marks button").first.click()
                expect(page.locator("#mark")).to_contain_text('File "<b>", line 7')
        speaker.line = b'{"level": 0.5}\n'
        with open_server(config({"tank": speaker.url}, http=("127.0.0.1", 0))) as running:
            with looking(browser, f"{running.http}/") as page, FastFlightClient(running.location) as client:
                expect(page.locator("#charts figcaption")).to_have_text(["level0.5"])
                with client.interact("tank"):
                    page.locator("#marks [data-kind=use]").click()
                expect(page.locator("#mark")).to_contain_text("held by an interactive session")
        speaker.line = b'{"level": 1.5}\n'
        with open_server(config({"tank": speaker.url}, **settings)) as running:
            with looking(browser, f"{running.http}/#/tank/live?span=3600000") as page:
                mark = page.locator("#marks [data-kind=traceback]").first
                expect(mark).to_have_attribute("aria-label", re.compile("traceback"))
                mark.click()
                expect(page.locator("#mark")).to_contain_text("ValueError: no sensor")


def test_a_board_that_prints_nothing_now_has_the_charts_of_its_recording(browser: Browser, tmp_path: Path) -> None:
    settings = {"record": ["tank"], "recordings": {"folder": tmp_path}, "http": ("127.0.0.1", 0)}
    with Speaker(b'{"seq": 1, "level": 1.5}\n') as speaker:
        with open_server(config({"tank": speaker.url}, **settings)) as running:
            with FastFlightClient(running.location) as client, client.session("tank", limit_rows=9) as rows:
                assert sum(batch.num_rows for batch in rows) == 9
        speaker.speaks = False
        with open_server(config({"tank": speaker.url}, **settings)) as running:
            with looking(browser, f"{running.http}/") as page:
                expect(page.locator("#charts figcaption")).to_have_text(["level1.5"])
