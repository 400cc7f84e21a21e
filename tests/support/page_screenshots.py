"""Screenshots of the live page: `python -m tests.support.page_screenshots FOLDER [BOARDS]`.

Takes the overview and a device with 1, 3, 30 and 300 boards, at widths of 1440, 900 and 390 pixels, light and dark.
With three boards it also takes chosen charts and their menu, the files, a preview, a question, the terminal and a
query. `BOARDS` is one of these numbers, and the others are left out. Pictures are named `BOARDS-WHAT-WIDTH-THEME.png`.
If all are taken, `FOLDER/docs` gets the pictures of docs/, with palettes: these have a third of the size.

The boards are TCP ports of this process that print JSON lines. One in ten is silent after a while, and one in ten
refuses its connection. Needs Chromium and playwright, as the tests of the page do.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from fastflight.app.compose import open_server
from fastflight_benchmark import ending
from tests.support.browser import OPTIONS, chromium
from tests.support.servers import config

BOARDS = (1, 3, 30, 300)
WIDTHS = {1440: 900, 900: 800, 390: 844}
THEMES = ("light", "dark")
ROWS_PER_SECOND = 5
# So that the charts have something to show.
CHART_SECONDS = 30
SHORT_MS = 1_200
# After this, one board in ten is silent.
SILENT_SECONDS = 12
PLACES = ("attic", "barn", "cellar", "garage", "greenhouse", "kitchen", "porch", "roof", "shed", "well")
GAP = 16
# The pictures in docs/, and the screenshots that they show beside each other.
DOCS = {
    "page": ["30-overview-1440-light"],
    "page-phone": ["30-overview-390-dark", "30-device-390-dark", "files-390-light", "terminal-390-light"],
    "pages/device": ["30-device-1440-light"],
    "pages/device-dark": ["1-overview-1440-dark"],
    "pages/charts": ["charts-1440-light"],
    "pages/three": ["3-overview-1440-light"],
    "pages/three-hundred": ["300-overview-1440-dark"],
    "pages/middle": ["30-overview-900-dark", "30-device-900-light"],
    "pages/files": ["files-1440-light"],
    "pages/preview": ["preview-1440-light"],
    "pages/terminal": ["terminal-1440-dark"],
    "pages/sql": ["sql-1440-light"],
}
QUERY = """select time_bucket(interval 10 minute, time) as time,
  avg(temperature) as temperature, avg(humidity) as humidity
from demo."readings.csv" group by 1 order by 1"""


class Weather:
    """Boards at `urls` that print a row with a time and three values, `ROWS_PER_SECOND` each, while the block runs."""

    def __init__(self, boards: int) -> None:
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(boards)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.urls = [f"socket://127.0.0.1:{each.getsockname()[1]}" for each in self._listeners]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        lines: list[socket.socket | None] = [None] * len(self._listeners)
        for each in self._listeners:
            each.setblocking(False)
        began = time.monotonic()
        while not self._ended.wait(1 / ROWS_PER_SECOND):
            seconds = time.monotonic() - began
            for number, listener in enumerate(self._listeners):
                try:
                    line = lines[number] or listener.accept()[0]
                    lines[number] = line
                    if number % 10 != 4 or seconds < SILENT_SECONDS:
                        line.sendall(row(number, seconds))
                except BlockingIOError:
                    continue
                except OSError:
                    lines[number] = None
        for opened in [*lines, *self._listeners]:
            if opened is not None:
                opened.close()


def row(number: int, seconds: float) -> bytes:
    """Return what a board prints."""
    slow = math.sin(seconds / 9 + number)
    values = {
        "ms": int(seconds * 1000),
        "temperature_c": round(21 + number % 7 + 1.5 * slow + 0.1 * math.sin(seconds * 3), 2),
        "humidity_pct": round(45 + number % 11 - 2 * slow, 1),
        "battery_v": 4.15 - number % 5 / 100,
    }
    return json.dumps(values).encode() + b"\n"


@contextmanager
def serving(boards: int) -> Iterator[str]:
    """Serve so many boards; yield the URL of the page."""
    with ExitStack() as stack:
        if boards == 3:  # simulated boards: they have files and a REPL
            devices = {"demo": "sim:", "greenhouse": "sim:?telemetry=1", "attic": "socket://127.0.0.1:9"}
        elif boards == 1:
            devices = {"demo": "sim:"}
        else:
            urls = stack.enter_context(Weather(boards)).urls
            urls = ["socket://127.0.0.1:9" if number % 10 == 7 else url for number, url in enumerate(urls)]
            devices = {f"{PLACES[number % 10]}-{number // 10 + 1}": url for number, url in enumerate(urls)}
        settings = config(devices, http=("127.0.0.1", 0))
        running = stack.enter_context(open_server(settings))
        assert running.http is not None
        yield running.http


def take(page: Page, file: Path) -> None:
    """Write what the page shows."""
    page.screenshot(path=file)


def write_docs(folder: Path) -> None:
    """Write the pictures for docs/ from screenshots of all kinds in `folder`."""
    (folder / "docs" / "pages").mkdir(parents=True, exist_ok=True)
    for name, sources in DOCS.items():
        images = [Image.open(folder / f"{source}.png").convert("RGB") for source in sources]
        gaps = GAP * (len(images) - 1)
        sheet = Image.new(
            "RGB", (sum(each.width for each in images) + gaps, max(each.height for each in images)), "white"
        )
        left = 0
        for image in images:
            sheet.paste(image, (left, 0))
            left += image.width + GAP
        # A small colour, such as a dot for a state, gets its place in a palette only if there is room for it.
        palette = sheet.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        palette.save(folder / "docs" / f"{name}.png", optimize=True)


def open_page(browser: Browser, url: str, width: int, theme: str) -> Page:
    """Open the page; return it once it has shown a device."""
    size = {"width": width, "height": WIDTHS[width]}
    phone = width < 500
    context = browser.new_context(viewport=size, color_scheme=theme, has_touch=phone)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    page.locator(".card").first.wait_for(state="attached")
    return page


def take_parts(page: Page, url: str, name: str, folder: Path) -> None:
    """Take chosen charts, the menu of one, the files, a preview, a question, the terminal and a query."""
    page.goto(f"{url}/#/demo/live?charts=temperature,humidity,greenhouse:temperature;humidity@temperature")
    page.wait_for_timeout(SHORT_MS)
    page.click("#view-pause")
    page.locator("#charts figure > div").first.hover()
    page.wait_for_timeout(SHORT_MS / 3)
    take(page, folder / f"charts-{name}.png")
    page.locator("figure .menu").first.click()
    take(page, folder / f"menu-{name}.png")
    page.locator("#chart-close").click()
    page.goto(f"{url}/#/demo/files")
    entry = page.locator("#entries tr", has_text="readings.csv")
    entry.wait_for()
    take(page, folder / f"files-{name}.png")
    entry.get_by_role("button", name="Preview").click()
    page.locator("#preview td").first.wait_for()
    take(page, folder / f"preview-{name}.png")
    page.locator("#preview-close").click()
    entry.get_by_role("button", name="Rename").click()
    take(page, folder / f"rename-{name}.png")
    page.locator("#question-no").click()
    page.goto(f"{url}/#/greenhouse/terminal")
    page.click("#terminal-open")
    page.locator("#terminal-said", has_text="Connected").wait_for()
    for line in ("import os", "os.listdir()", "[n * n for n in range(8)]"):
        page.keyboard.type(f"{line}\r")
        page.wait_for_timeout(SHORT_MS / 3)
    take(page, folder / f"terminal-{name}.png")
    page.click("#terminal-close")
    page.goto(f"{url}/#/sql")
    page.fill("#sql-query", QUERY)
    page.click("#sql-run")
    page.locator("#sql-rows td").first.wait_for()
    page.wait_for_timeout(SHORT_MS)
    take(page, folder / f"sql-{name}.png")


def main(folder: Path, only: str = "") -> None:
    """Take all screenshots."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        for boards in BOARDS:
            if only and str(boards) != only:
                continue
            device = "demo" if boards < 10 else "attic-1"
            with serving(boards) as url:
                # It keeps the server reading the boards, so that all charts have the same past.
                open_page(browser, url, 900, "light").wait_for_timeout(CHART_SECONDS * 1000)
                for width in WIDTHS:
                    for theme in THEMES:
                        name = f"{width}-{theme}"
                        page = open_page(browser, url, width, theme)
                        page.wait_for_timeout(SHORT_MS)
                        take(page, folder / f"{boards}-overview-{name}.png")
                        page.goto(f"{url}/#/{device}/live")
                        page.wait_for_timeout(SHORT_MS)
                        take(page, folder / f"{boards}-device-{name}.png")
                        if boards == 3:
                            take_parts(page, url, name, folder)
                        page.context.close()
        browser.close()
    if not only:
        write_docs(folder)


if __name__ == "__main__":
    ending.like_ctrl_c()
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"), *sys.argv[2:3])
