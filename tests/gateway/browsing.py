"""A server with its page, and the page in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

from fastflight.app.compose import RunningServer, open_server
from tests.support.browser import OPTIONS
from tests.support.servers import config

# For a browser on a busy machine; what is there is seen at once.
PATIENCE_MS = 20_000


@contextmanager
def launched(chromium: str) -> Iterator[Browser]:
    """The browser at this path, until the block ends."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        yield running
        running.close()


@contextmanager
def serving(http_port: int = 0, **devices: str) -> Iterator[RunningServer]:
    """A server with these devices, and its page."""
    settings = config(devices, http=("127.0.0.1", http_port))
    with open_server(settings) as running:
        yield running


@contextmanager
def looking(browser: Browser, url: str, **options: object) -> Iterator[Page]:
    """A page that has had no error, and loaded nothing from elsewhere, when the test is done with it."""
    with browser.new_context(**options) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        errors: list[str] = []
        asked: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        yield page
        assert errors == []
        origin = "/".join(url.split("/")[:3])
        assert [
            each for each in asked if not each.startswith((origin, "data:", origin.replace("http", "ws"), "blob:"))
        ] == []
