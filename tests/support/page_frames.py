"""Frames per second of the live page: `python -m tests.support.page_frames`.

A board prints 100 rows a second with four columns. Counts the frames of Chromium for some seconds while the four charts
follow the data, then while the charts are dragged, then with a whole hour in memory (360,000 points) that is dragged.
Prints for each: frames per second, the longest frame, the median time that `code` took, and how long the page's thread
has computed for a frame. This last figure is that of its processor time, which other programs do not change.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from playwright.sync_api import Page, sync_playwright

from tests.gateway.browsing import serving
from tests.gateway.speaking_device import Speaker
from tests.support.browser import OPTIONS, chromium

SECONDS = 8
ROWS_PER_SECOND = 100
# `move(frame)` is called at each frame.
COUNT = """async ([seconds, code]) => {
  const move = await (0, eval)(code)();
  const [times, began] = [[], performance.now()];
  let [frames, before, longest] = [0, began, 0];
  while (performance.now() - began < seconds * 1000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    move(frames++);
    times.push(performance.now() - now);
    longest = Math.max(longest, now - before);
    before = now;
  }
  times.sort((one, other) => one - other);
  const fps = frames / (performance.now() - began) * 1000;
  return { fps, longest, median: times[times.length >> 1], most: times.at(-1) };
}"""
FOLLOW = "async () => () => {}"
DRAG = """async () => {
  const area = document.querySelector("#charts figure > div");
  const { left, top, width } = area.getBoundingClientRect();
  const send = (kind, x) => area.dispatchEvent(
    new PointerEvent(kind, { pointerId: 1, clientX: left + x, clientY: top + 20, bubbles: true }));
  area.setPointerCapture = () => {};
  send("pointerdown", width / 2);
  return (frame) => send("pointermove", width / 2 + 200 * Math.sin(frame / 30));
}"""
HOUR = """async () => {
  const [{ History }, { Charts }, { TimeView }] = await Promise.all(
    ["history", "charts", "timeview"].map((name) => import(`/page/${name}.js`)));
  const names = ["a", "b", "c", "d"];
  const history = new History(360000);
  const value = (at, n) => Math.sin(at / 5000 / (n + 1)) + Math.random() / 5;
  const points = Array.from({ length: 360000 }, (_, at) => [at * 10, ...names.map((_, n) => value(at, n))]);
  history.add(points, names);
  const device = { name: "x", history, names: () => names, late: 3000, keepMore() {},
    unitOf: () => "", decimals: () => 2, current: () => "", written: (_, value) => value.toFixed(2) };
  const view = new TimeView(() => {}, undefined, true);
  const element = document.getElementById("charts");
  element.replaceChildren();
  const charts = new Charts(element, view, { find: () => device });
  charts.show(device);
  await new Promise((done) => setTimeout(done, 500));
  view.pause();
  return (frame) => { view.pan(20000 * Math.sin(frame / 30)); charts.show(device); };
}"""


@contextmanager
def printing(speaker: Speaker) -> Iterator[None]:
    """Change the line of the speaker all the time; it says each line four times, 25 times a second."""
    ended = Event()

    def run() -> None:
        while not ended.wait(0.01):
            now = time.monotonic()
            rows = [{f"value_{n}": round(math.sin(now / (n + 1)), 3) for n in range(4)}] * 5
            speaker.line = b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    thread = Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()


def measure(page: Page, what: str, code: str) -> None:
    """Print the frames of the page while `code` moves the charts."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def computed() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    before = computed()
    found = page.evaluate(COUNT, [SECONDS, code])
    found["computed ms a frame"] = (computed() - before) * 1000 / (found["fps"] * SECONDS)
    print(what, {key: round(value, 1) for key, value in found.items()})  # noqa: T201


def main() -> None:
    """Measure."""
    with (
        sync_playwright() as driver,
        Speaker(b"\n") as speaker,
        printing(speaker),
        serving(demo=speaker.url) as running,
    ):
        browser = driver.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{running.http}/#/demo/live")
        page.locator("#charts canvas").nth(3).wait_for()
        page.wait_for_timeout(SECONDS * 1000)
        print("rows/s", page.locator("#facts dd").nth(1).text_content())  # noqa: T201
        measure(page, "follow", FOLLOW)
        measure(page, "drag", DRAG)
        measure(page, "drag an hour", HOUR)
        browser.close()


if __name__ == "__main__":
    main()
