"""Screenshots of the live page: `python -m tests.support.page_screenshots FOLDER`.

Starts servers with simulated boards and takes: three devices with one live, its files, its terminal; a hundred devices;
a phone, light and dark; a device that fell silent. Needs Chromium and playwright, as the tests of the page do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from fastflight.app.compose import open_server
from fastflight.app.settings import ServeSettings
from fastflight_benchmark import ending
from fastflight_benchmark.printing import printing
from fastflight_benchmark.printing_boards import Options as Boards
from tests.support.browser import OPTIONS, chromium

DESKTOP = {"width": 1100, "height": 720}
PHONE = {"width": 360, "height": 720}
# So that the charts have something to show.
CHART_MS = 12_000
SHORT_MS = 1_500
SILENT_MS = 4_000


@contextmanager
def serving(devices: dict[str, str]) -> Iterator[str]:
    settings = ServeSettings("grpc://127.0.0.1:0", devices=devices, http=("127.0.0.1", 0))
    with open_server(settings) as running:
        assert running.http is not None
        yield running.http


def main(folder: Path) -> None:
    """Take them all."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        three = {"demo": "sim:", "greenhouse": "sim:?telemetry=4", "attic": "socket://127.0.0.1:9"}
        with serving(three) as url:
            page = _page(browser, f"{url}/#/demo/live", DESKTOP)
            page.wait_for_timeout(CHART_MS)
            page.screenshot(path=folder / "page.png")
            page.click("#tab-files")
            page.wait_for_timeout(SHORT_MS)
            page.screenshot(path=folder / "files.png")
            for name, dark in (("phone", True), ("phone-light", False)):
                phone = _page(browser, f"{url}/#/demo/live", PHONE, dark=dark)
                phone.wait_for_timeout(SHORT_MS)
                phone.screenshot(path=folder / f"{name}.png")
                phone.click("#back")
                phone.wait_for_timeout(SHORT_MS)
                phone.screenshot(path=folder / f"{name}-list.png")
        with serving({"demo": "sim:?telemetry=0"}) as url:
            page = _page(browser, f"{url}/#/demo/terminal", DESKTOP)
            page.click("#terminal-open")
            page.locator("#terminal-said", has_text="Connected").wait_for()
            for line in ("import os", "os.listdir()", "[n * n for n in range(8)]"):
                page.keyboard.type(f"{line}\r")
                page.wait_for_timeout(SHORT_MS / 3)
            page.screenshot(path=folder / "terminal.png")
        with ExitStack() as stack:
            fleet = stack.enter_context(printing(Boards(100)))
            devices = {f"board-{number:03d}": url for number, url in enumerate(fleet.urls)}
            url = stack.enter_context(serving(devices))
            page = _page(browser, f"{url}/#/board-001/live", DESKTOP)
            page.wait_for_timeout(CHART_MS)
            page.screenshot(path=folder / "hundred.png")
            fleet.stop()
            page.wait_for_timeout(SILENT_MS)
            page.screenshot(path=folder / "stale.png")
        browser.close()


def _page(browser: Browser, url: str, size: dict[str, int], *, dark: bool = False) -> Page:
    context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    page.locator(".card").first.wait_for(state="attached")
    return page


if __name__ == "__main__":
    ending.like_ctrl_c()
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
