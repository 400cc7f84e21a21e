"""What the page in a headless Chromium does with devices: their order, values, charts, files and terminal keys."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from fastflight.client import FastFlightClient

from .browsing import looking, serving
from .speaking_device import Speaker

PHONE = {"width": 390, "height": 700}
REFUSED = "socket://127.0.0.1:9"


def entry(page: Page, name: str) -> Any:
    return page.get_by_role("row", name=re.compile(re.escape(name)))


def put(location: str, folder: Path, path: str, content: bytes) -> None:
    (folder / "local").write_bytes(content)
    with FastFlightClient(location) as client:
        client.put_file("demo", path, folder / "local")


def listed(location: str, device: str = "demo") -> list[str]:
    with FastFlightClient(location) as client:
        return [each.path for each in client.ls(device)]


def test_devices_with_trouble_come_first_and_cards_move_when_states_change(browser: Browser) -> None:
    with ExitStack() as stack:
        alive, fading, quiet = (stack.enter_context(Speaker(b'{"level": 1.5}\n')) for _ in range(3))
        quiet.speaks = False
        devices = {"a-live": alive.url, "b-silent": fading.url, "c-quiet": quiet.url, "d-gone": REFUSED}
        running = stack.enter_context(serving(**devices))
        page = stack.enter_context(looking(browser, f"{running.http}/"))
        names = page.locator(".card .name")
        expect(names).to_have_text(["d-gone", "a-live", "b-silent", "c-quiet"])
        expect(page.locator(".card .text").first).to_contain_text("refused")
        fading.speaks = False
        expect(names).to_have_text(["d-gone", "b-silent", "a-live", "c-quiet"])


def test_cards_show_the_newest_values_with_units(browser: Browser) -> None:
    line = b'{"seq": 7, "temperature_c": 21.43, "humidity_pct": 45, "battery_v": 4.1500001, "x": 1}\n'
    with Speaker(line) as device, serving(tank=device.url, other="sim:?telemetry=0") as running:
        with looking(browser, f"{running.http}/") as page:
            values = page.locator(".card", has_text="tank").locator(".values > span")
            expect(values).to_have_text(["temperature_c21.43 \u00b0C", "humidity_pct45 %", "battery_v4.15 V"])


def test_the_only_device_is_shown_without_being_chosen(browser: Browser) -> None:
    with serving(demo="sim:") as running:
        for size in (PHONE, {"width": 1440, "height": 900}):
            with looking(browser, f"{running.http}/", viewport=size) as page:
                expect(page.locator("#name")).to_have_text("demo")
                expect(page.locator("#fleet")).to_be_hidden()
                expect(page.locator("#back")).to_be_hidden()
                page.get_by_role("tab", name="Files").click()
                expect(entry(page, "readings.csv")).to_be_visible()


def test_times_and_counts_have_no_chart_and_values_stand_beside_the_titles(browser: Browser) -> None:
    line = b'{"ms": 5, "seq": 7, "uptime_s": 9, "timestamp": 1, "temperature_c": 21.4}\n'
    with Speaker(line) as device, serving(tank=device.url) as running:
        with looking(browser, f"{running.http}/") as page:
            expect(page.locator("#charts figcaption")).to_have_text(["temperature_c21.4 \u00b0C"])
            expect(page.locator("#line")).to_contain_text('"uptime_s": 9')


COLUMNS = 'import("/page/columns.js")'


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """A page that has all its connections and modules: no test opens another one."""
    with serving(gone=REFUSED) as running, looking(browser, f"{running.http}/") as page:
        expect(page.locator("#name")).to_have_text("gone")
        page.evaluate(f"async () => {{ await {COLUMNS}; }}")
        yield page


def evaluate(page: Page, module: str, call: str) -> Any:
    return page.evaluate(f"async () => (await {module}).{call}")


def test_an_axis_comes_from_its_values_and_has_a_least_span(modules: Page) -> None:
    def axis(*values: float | None) -> tuple[float, float]:
        made = evaluate(modules, COLUMNS, f"axisFor({json.dumps(values)})")
        numbers = [value for value in values if value is not None]
        assert made["step"] > 0 and all(made["min"] <= value <= made["max"] for value in numbers)
        return made["min"], made["max"]

    low, high = axis(4.15, 4.15, None)
    assert 3.9 < low < 4.15 < high < 4.4
    low, high = axis(1000.0, 1000.1, 999.9)  # noise: less than a hundredth
    assert 10 <= high - low <= 30
    assert axis(20.0, 26.0, 31.0) == (20, 35)
    assert axis(0, 0) == axis() == (0, 6)
    for values in ((-3.0, -3.0), (1e-9, 2e-9), (1e299, -1e299), (7e15, 7e15 + 2), (0.1 + 0.2, 0.3)):
        axis(*values)


def test_a_clock_is_known_by_its_name_or_its_values(modules: Page) -> None:
    def is_clock(name: str, *values: float) -> bool:
        return bool(evaluate(modules, COLUMNS, f"isClock({json.dumps(name)}, {json.dumps(values)})"))

    assert all(is_clock(name) for name in ("ms", "ticks_ms", "Uptime", "time_utc", "seq"))
    assert is_clock("t", 1, 2, 3, 0, 1)  # the device has restarted
    assert not is_clock("t", 21.5, 21.4, 21.6, 21.3)
    assert not is_clock("count", 3, 3, 3)
    assert not any(is_clock(name, 1, 2, 3) for name in ("temperature", "latency_ms", "timely"))


def reduced(page: Page, points: list[list[float | None]], name: str, pixels: int = 100) -> list[list[float | bool]]:
    """The buckets of the column `a` or `b` of points: [time, low, high, whether there is a gap before]."""
    return page.evaluate(  # type: ignore[no-any-return]
        """async ([points, name, pixels]) => {
          const { History } = await import("/page/history.js");
          const { reduce } = await import("/page/reduce.js");
          const history = new History(360000);
          for (const point of points) {
            history.add([point], ["a", "b"]);
            if (history.size % 999 === 0) reduce(history, name, history.oldest, history.newest, 5);
          }
          const { times, lows, highs, broken } = reduce(history, name, history.oldest, history.newest, pixels, 3000);
          return times.map((time, place) => [time, lows[place], highs[place], broken[place]]);
        }""",
        [points, name, pixels],
    )


def test_a_pause_is_a_gap_in_a_chart(modules: Page) -> None:
    points: list[list[float | None]] = [[0, 1, 5], [1000, 2, None], [2000, 3, None], [60000, 4, 6]]

    def gaps(name: str) -> list[list[float | bool]]:
        return [[time, low] for time, low, high, broken in reduced(modules, points, name) if broken]

    assert gaps("a") == [[60000, 4]]
    assert gaps("b") == []  # it has always been as slow
    points.insert(2, [1500])  # something is missing, however short the pause
    assert gaps("a") == [[2000, 3], [60000, 4]]


def test_a_chart_of_many_points_has_few_buckets_and_all_spikes(modules: Page) -> None:
    points: list[list[float | None]] = [[at * 10, 1 + at % 2, None] for at in range(20_000)]
    points[7_777] = [77_770, 500, None]
    points[12_345] = [123_450, -500, None]
    found = reduced(modules, points, "a")
    assert 100 <= len(found) <= 102
    assert (max(high for _, _, high, _ in found), min(low for _, low, _, _ in found)) == (500, -500)
    assert not any(broken for *_, broken in found)
    points[5_000:9_000] = [[77_000, -900, None]]
    found = reduced(modules, points, "a")
    assert [time for time, *_, broken in found if broken] == [77_000, 90_000]
    assert min(low for _, low, _, _ in found) == -900


def test_the_memory_of_a_page_is_bounded_by_time_and_by_points(modules: Page) -> None:
    kept = modules.evaluate(
        """async () => {
          const { History, KEPT_MS } = await import("/page/history.js");
          const history = new History(1000);
          for (let at = 0; at < 5000; at++) history.add([[at, at]], ["a"]);
          const few = [history.size, history.oldest, history.recent("a", 2), history.room <= 4000];
          history.add([[KEPT_MS + 4990, 7, 8]], ["a", "b"]);
          return [few, history.size, history.recent("b", 99), history.nearest("a", 4995)];
        }"""
    )
    assert kept == [[1000, 4000, [4998, 4999], True], 11, [8], [4995, 4995]]


def test_a_file_is_renamed_but_never_onto_another(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/files") as page:
        entry(page, "log.bin").get_by_role("button", name="Rename").click()
        for name, why in (("main.py", "already exists"), ("a/b", "slash"), (" ", "Type a name")):
            page.locator("#question-input").fill(name)
            page.locator("#question-yes").click()
            expect(page.locator("#question-failed")).to_contain_text(why)
        page.locator("#question-input").fill("n\u00e4w.bin")
        page.keyboard.press("Enter")
        expect(page.locator("#files-said")).to_have_text("log.bin is now n\u00e4w.bin.")
        expect(entry(page, "n\u00e4w.bin")).to_be_visible()
        assert {"/n\u00e4w.bin", "/main.py"} < set(listed(running.location))
        with FastFlightClient(running.location) as client:  # the page does not know of it
            client.rename("demo", "/events.jsonl", "/other.jsonl")
        entry(page, "main.py").get_by_role("button", name="Rename").click()
        page.locator("#question-input").fill("other.jsonl")
        page.locator("#question-yes").click()
        expect(page.locator("#files-said")).to_contain_text("already exists")
        assert "/main.py" in listed(running.location)


def test_a_file_is_deleted_only_after_a_question(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/files") as page:
        for key in ("Enter", "Escape"):  # the button that does nothing has the focus
            entry(page, "log.bin").get_by_role("button", name="Delete").click()
            expect(page.locator("#question-title")).to_have_text("Delete log.bin?")
            expect(page.locator("#question-no")).to_be_focused()
            page.keyboard.press(key)
            expect(page.locator("#question")).to_be_hidden()
        assert "/log.bin" in listed(running.location)
        entry(page, "log.bin").get_by_role("button", name="Delete").click()
        page.locator("#question-yes").click()
        expect(page.locator("#files-said")).to_have_text("log.bin is deleted.")
        expect(entry(page, "log.bin")).to_have_count(0)
        assert "/log.bin" not in listed(running.location)


def test_the_beginning_of_a_file_is_shown(browser: Browser, tmp_path: Path) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/files") as page:
        entry(page, "readings.csv").get_by_role("button", name="Preview").click()
        expect(page.locator("#preview-said")).to_have_text("The first 50 rows.")
        expect(page.locator("#preview-content tbody tr")).to_have_count(50)
        expect(page.locator("#preview-content th").first).to_have_text("time")
        page.keyboard.press("Escape")
        entry(page, "main.py").get_by_role("button", name="Preview").click()
        expect(page.locator("#preview-content pre")).to_contain_text("import json")
        page.locator("#preview-close").click()
        entry(page, "log.bin").get_by_role("button", name="Preview").click()
        expect(page.locator("#preview-said")).to_contain_text("not text")
        page.locator("#preview-close").click()
        put(running.location, tmp_path, "/long.txt", b"<b>" + b"x" * 5000)
        page.locator("#path button").first.click()
        entry(page, "long.txt").get_by_role("button", name="long.txt").click()
        expect(page.locator("#preview-said")).to_have_text("The first 4096 of 5003 bytes.")
        expect(page.locator("#preview-content pre")).to_contain_text("<b>xxx")
        page.locator("#preview-close").click()
        put(running.location, tmp_path, "/wrong.arrow", b"no table")
        page.locator("#path button").first.click()
        entry(page, "wrong.arrow").get_by_role("button", name="Preview").click()
        expect(page.locator("#preview-content pre")).to_have_text("no table")


def test_an_upload_is_cancelled_and_the_old_file_stays(browser: Browser, tmp_path: Path) -> None:
    with serving(demo="sim:?telemetry=0&baud=115200") as running:
        with looking(browser, f"{running.http}/#/demo/files") as page:
            expect(entry(page, "main.py")).to_be_visible()
            names = ("main.py", "new.py")
            # So much takes a quarter of a minute, unless it is packed.
            content = random.Random(1).randbytes(200_000)
            buffers = [FilePayload(name=name, mimeType="", buffer=content) for name in names]
            page.locator("#upload-file").set_input_files(buffers)
            expect(page.locator("#question-title")).to_have_text("Replace main.py?")
            page.locator("#question-yes").click()
            rows = page.locator("#uploads li")
            expect(rows).to_have_count(2)
            expect(rows.first).to_contain_text("the device writes")
            rows.last.get_by_role("button", name="Cancel").click()
            expect(rows.last).to_have_text("demo:/new.py: cancelled")
            rows.first.get_by_role("button", name="Cancel").click()
            expect(rows.first).to_contain_text("demo:/main.py: cancelled")
            expect(page.locator("#facts dd").nth(4)).to_have_text("nobody")
            with FastFlightClient(running.location) as client:
                client.get_file("demo", "/main.py", tmp_path / "main.py")
            assert b"import json" in (tmp_path / "main.py").read_bytes()
            assert "/new.py" not in listed(running.location)


DROP = """([name, text]) => { const data = new DataTransfer(); data.items.add(new File([text], name));
  const panel = document.getElementById("files");
  for (const kind of ["dragover", "drop"]) {
    panel.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    if (kind === "dragover") window.marked = panel.classList.contains("dropping");
  } }"""


def test_a_file_that_is_dropped_is_uploaded_and_replaces_no_unseen_file(browser: Browser, tmp_path: Path) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/files") as page:
        expect(entry(page, "readings.csv")).to_be_visible()
        page.evaluate(DROP, ["dropped.txt", "hello"])
        assert page.evaluate("window.marked") is True
        expect(page.locator("#uploads")).to_have_text("demo:/dropped.txt: 5 B written and verified")
        expect(entry(page, "dropped.txt")).to_be_visible()
        put(running.location, tmp_path, "/unseen.txt", b"old")
        page.evaluate(DROP, ["unseen.txt", "new"])
        expect(page.locator("#uploads li").last).to_contain_text("has appeared meanwhile")
        page.evaluate(DROP, ["dropped.txt", "new"])
        page.locator("#question-no").click()
        expect(page.locator("#uploads li")).to_have_count(2)


def test_a_phone_has_keys_for_the_terminal(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running:
        with looking(browser, f"{running.http}/#/demo/terminal", viewport=PHONE, has_touch=True) as page:
            page.get_by_role("button", name="Open the REPL").click()
            expect(page.locator("#terminal-said")).to_contain_text("Connected")
            page.keyboard.type("print('wait' + 'ing') or all(True for _ in iter(int, 1))\r")
            expect(page.locator(".xterm-rows")).to_contain_text("waiting")
            page.get_by_role("button", name="Ctrl-C").tap()
            expect(page.locator(".xterm-rows")).to_contain_text("KeyboardInterrupt")
            expect(page.locator(".xterm-helper-textarea")).to_be_focused()
            page.get_by_role("button", name="Ctrl-D").tap()
            expect(page.locator(".xterm-rows")).to_contain_text("soft reboot")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_lines_that_end_without_cr_are_no_staircase(browser: Browser) -> None:
    with Speaker(b"one\ntwo\n") as device, serving(tank=device.url) as running:
        with looking(browser, f"{running.http}/#/tank/terminal") as page:
            page.get_by_role("button", name="Open the REPL").click()
            expect(page.locator(".xterm-rows > div").nth(3)).to_have_text(re.compile("^(one|two)"))
