"""The live page in a headless Chromium: what a person sees and does there."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fastflight.client import FastFlightClient
from fastflight.gateway.page import listeners

from .browsing import looking, serving
from .guarded_gateway import guarding
from .speaking_device import Speaker

SCREAM = "<img src=x onerror='window.ran = true'><script>window.ran = true</script>"


def rows(page: Page) -> int:
    shown = page.locator("#facts dd").nth(2).text_content()
    return int(shown or 0)


def test_rows_arrive_and_numbers_are_drawn_and_no_error_is_logged(browser: Browser) -> None:
    with serving(demo="sim:") as running, looking(browser, f"{running.http}/") as page:
        expect(page.locator("#connection")).to_have_text("connected")
        expect(page.locator("#state")).to_have_text(re.compile(r"live, \d"))
        expect(page.locator("#charts canvas")).to_have_count(3)
        expect(page.locator("#line")).to_have_text(re.compile(r'"temperature": \d'))
        before = rows(page)
        page.wait_for_function(
            "seen => Number(document.querySelectorAll('#facts dd')[2].textContent) > seen", arg=before
        )
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        page.reload()
        expect(page.locator("#state")).to_have_text(re.compile(r"live, \d"))
        assert logged == []


def test_the_list_is_searched_and_filtered(browser: Browser) -> None:
    devices = {f"board-{number:02d}": "socket://127.0.0.1:9" for number in range(12)}
    with serving(demo="sim:", **devices) as running, looking(browser, f"{running.http}/") as page:
        expect(page.locator(".card:visible")).to_have_count(13)
        page.locator("#search").fill("-07")
        expect(page.locator(".card:visible .name")).to_have_text(["board-07"])
        page.locator("#search").fill("")
        expect(page.get_by_role("button", name="trouble 12")).to_be_visible()
        page.get_by_role("button", name=re.compile("^live")).click()
        expect(page.locator(".card:visible .name")).to_have_text(["demo"])


def test_the_terminal_answers_and_says_who_holds_the_device(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running:
        with looking(browser, f"{running.http}/#/demo/terminal") as page:
            page.get_by_role("button", name="Open the REPL").click()
            expect(page.locator("#terminal-said")).to_contain_text("Connected")
            page.keyboard.type("print(6 * 7, 'gr' + chr(252) + 'n')\r")
            expect(page.locator(".xterm-rows")).to_contain_text("42 gr\u00fcn")
            page.keyboard.type("print('wait' + 'ing') or all(True for _ in iter(int, 1))\r")
            expect(page.locator(".xterm-rows")).to_contain_text("waiting")
            page.keyboard.press("Control+c")
            expect(page.locator(".xterm-rows")).to_contain_text("KeyboardInterrupt")
            with looking(browser, f"{running.http}/#/demo/terminal") as other:
                other.get_by_role("button", name="Open the REPL").click()
                expect(other.locator("#terminal-said")).to_contain_text("an interactive session")
                expect(other.locator("#terminal-said")).to_have_class("failed")
            page.get_by_role("button", name="Close", exact=True).click()
            expect(page.locator("#terminal-said")).to_contain_text("Others can use the device again")


def test_a_file_is_downloaded_as_it_is_and_as_rows(browser: Browser, tmp_path: Path) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/files") as page:
        entry = page.get_by_role("row", name=re.compile("readings.csv"))
        for kind, name in (("Download", "readings.csv"), ("Parquet", "readings.parquet")):
            with page.expect_download() as downloading:
                entry.get_by_role("link", name=kind).click()
            assert downloading.value.suggested_filename == name
            downloading.value.save_as(tmp_path / name)
        with FastFlightClient(running.location) as client:
            client.get_file("demo", "/readings.csv", tmp_path / "asked.csv")
        assert (tmp_path / "readings.csv").read_bytes() == (tmp_path / "asked.csv").read_bytes()
        assert (tmp_path / "readings.parquet").read_bytes()[:4] == b"PAR1"


def test_a_file_is_uploaded_and_an_error_is_told_as_it_is(browser: Browser, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    with serving(demo="sim:?telemetry=0", gone="socket://127.0.0.1:9") as running:
        with looking(browser, f"{running.http}/#/demo/files") as page:
            expect(page.get_by_role("row", name=re.compile("readings.csv"))).to_be_visible()
            page.locator("#upload-file").set_input_files({"name": "n\u00e4w 1.bin", "mimeType": "", "buffer": content})
            expect(page.locator("#uploads")).to_have_text("demo:/n\u00e4w 1.bin: 10.2 kB written and verified")
            expect(page.get_by_role("row", name=re.compile("n\u00e4w 1.bin"))).to_be_visible()
            with FastFlightClient(running.location) as client:
                client.get_file("demo", "/n\u00e4w 1.bin", tmp_path / "read")
            assert (tmp_path / "read").read_bytes() == content
            page.goto(f"{running.http}/#/gone/files")
            expect(page.locator("#files-said")).to_contain_text("gone: cannot connect")


def test_silence_is_stale_a_lost_line_is_a_gap_and_a_cut_one_trouble(browser: Browser) -> None:
    with Speaker(b'{"level": 1.5}\n') as device, serving(tank=device.url) as running:
        with looking(browser, f"{running.http}/#/tank/live") as page:
            expect(page.locator("#state")).to_have_text(re.compile("^live"))
            expect(page.locator("#missing")).to_be_hidden()
            device.drop()
            expect(page.locator("#gaps li")).to_have_text(re.compile(r"^\d.* to \d.*: line lost"))
            device.speaks = False
            expect(page.locator("#state")).to_have_text(re.compile(r"^stale, \d.* ago"))
            expect(page.locator("#device")).to_have_class("old")
            device.speaks = True
            expect(page.locator("#state")).to_have_text(re.compile("^live"))
            device.cut()
            expect(page.locator("#state")).to_have_text(re.compile(r"^trouble, last data \d.* ago"))
            expect(page.locator("#trouble")).to_be_visible()


def test_a_server_that_went_away_is_said_and_found_again(browser: Browser) -> None:
    with ExitStack() as looked:
        with serving(demo="sim:") as running:
            port = int(str(running.http).rpartition(":")[2])
            page = looked.enter_context(looking(browser, str(running.http)))
            expect(page.locator(".card")).to_have_attribute("data-state", "live")
        expect(page.locator("#connection")).to_have_text(re.compile("^connection lost"))
        expect(page.locator(".card")).to_have_attribute("data-state", "stale")
        with serving(port, demo="sim:"):
            expect(page.locator("#connection")).to_have_text("connected")
            expect(page.locator(".card")).to_have_attribute("data-state", "live")
            looked.close()


def test_the_age_goes_on_while_the_page_tries_to_connect_again(browser: Browser) -> None:
    with serving(demo="sim:") as running:
        looked = ExitStack()
        page = looked.enter_context(looking(browser, f"{running.http}/#/demo/live"))
        expect(page.locator("#state")).to_have_text(re.compile("^live"))
        page.evaluate("""() => { window.ages = []; const state = document.getElementById("state");
          new MutationObserver(() => window.ages.push(state.textContent)).observe(state, { childList: true }); }""")
    with looked:
        for _ in range(3):
            with page.expect_event("websocket"):
                pass
        told = [re.fullmatch(r"stale, (\d+(?:\.\d)?) s ago", each) for each in page.evaluate("window.ages")]
        ages = [float(each[1]) for each in told if each]
        assert len(set(ages)) > 5
        assert ages == sorted(ages)


def test_an_unknown_device_has_no_figures_of_another(browser: Browser) -> None:
    with serving(demo="sim:") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        expect(page.locator("#state")).to_have_text(re.compile("^live"))
        page.goto(f"{running.http}/#/nope/live")
        expect(page.locator("#state")).to_have_text("no such device")
        expect(page.locator("#unknown")).to_be_visible()
        for each in ("#facts", "#line", "#charts", "#url", "#tabs"):
            expect(page.locator(each)).to_be_hidden()
        page.goto(f"{running.http}/#/demo/live")
        expect(page.locator("#facts")).to_be_visible()
        expect(page.locator("#unknown")).to_be_hidden()


def test_what_was_said_before_anybody_looked_is_known(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "SINCE_SECONDS", 0)
    with Speaker(b'{"level": 1.5}\n') as device, serving(tank=device.url) as running:
        with FastFlightClient(running.location) as client, client.session("tank", limit_rows=3) as rows:
            assert sum(batch.num_rows for batch in rows) == 3
        device.speaks = False
        with looking(browser, f"{running.http}/#/tank/live") as page:
            expect(page.locator("#state")).to_have_text(re.compile(r"^stale, \d.* ago"))


def test_a_transfer_is_not_counted_as_dropped(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=20") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        expect(page.locator("#state")).to_have_text(re.compile("^live"))
        before = rows(page)
        page.goto(f"{running.http}/#/demo/files")
        content = bytes(range(256)) * 4000
        page.locator("#upload-file").set_input_files({"name": "big.bin", "mimeType": "", "buffer": content})
        expect(page.locator("#uploads")).to_have_text("demo:/big.bin: 1.0 MB written and verified")
        assert page.locator("#facts dd").nth(3).text_content() == "0"
        expect(page.locator(".card .badges")).not_to_contain_text("dropped")
        assert rows(page) - before < 500  # nor is it among the rows


def test_a_folder_waits_for_the_repl_in_another_tab(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running:
        with looking(browser, f"{running.http}/#/demo/terminal") as page:
            page.get_by_role("button", name="Open the REPL").click()
            expect(page.locator("#terminal-said")).to_contain_text("Connected")
            with looking(browser, f"{running.http}/#/demo/files") as other:
                expect(other.locator("#files-said")).to_contain_text("demo is in use by ")
                expect(other.locator("#files-said")).to_contain_text("a REPL in another tab by its Close button")
                page.get_by_role("button", name="Close", exact=True).click()
                expect(other.get_by_role("row", name=re.compile("readings.csv"))).to_be_visible()
                expect(other.locator("#files-said")).to_be_empty()


PASTE = """text => { const data = new DataTransfer(); data.setData("text/plain", text);
  document.querySelector(".xterm-helper-textarea").dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: data, bubbles: true })); }"""


def test_the_terminal_takes_what_is_pasted_fits_its_place_and_is_left_by_escape(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/terminal") as page:
        page.get_by_role("button", name="Open the REPL").click()
        expect(page.locator("#terminal-said")).to_contain_text("Connected")
        page.evaluate(PASTE, "print('pas' + 'ted', 1)\nprint('pas' + 'ted', 2)\n")
        expect(page.locator(".xterm-rows")).to_contain_text("pasted 2")
        expect(page.locator("#terminal-keys")).to_contain_text("Escape leaves the terminal")
        typed = page.locator(".xterm-helper-textarea")
        expect(typed).to_be_focused()
        page.keyboard.press("Tab")
        expect(typed).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#terminal-close")).to_be_focused()
        page.keyboard.press("Shift+Tab")
        expect(page.locator("#terminal-open")).not_to_be_focused()  # it cannot be pressed now
        expect(typed).not_to_be_focused()
        page.set_viewport_size({"width": 390, "height": 700})
        page.wait_for_function("""() => { const width = (name) => document.querySelector(name).clientWidth;
          return width(".xterm-screen") <= width("#screen") && document.documentElement.scrollWidth <= innerWidth; }""")


def test_what_a_device_says_is_text_and_never_runs(browser: Browser) -> None:
    said = f'{{"{SCREAM}": 1, "x": 2}}\n{SCREAM}\n'.encode()
    with Speaker(said) as device, serving(demo="sim:?telemetry=0", **{SCREAM: device.url}) as running:
        with looking(browser, f"{running.http}/") as page:
            page.locator(".card .name", has_text="onerror").click()
            expect(page.locator("#name")).to_have_text(SCREAM)
            expect(page.locator("#line")).to_have_text(SCREAM)
            expect(page.locator("#charts figcaption span")).to_have_text([SCREAM[:40], "x"])
            page.goto(f"{running.http}/#/demo/files")
            expect(page.get_by_role("row", name=re.compile("readings.csv"))).to_be_visible()
            page.locator("#upload-file").set_input_files(
                {"name": "<img src=x onerror='ran = true'>.txt", "mimeType": "", "buffer": b"x"}
            )
            expect(page.locator("#entries")).to_contain_text("<img src=x onerror='ran = true'>.txt")
            assert page.evaluate("window.ran") is None
            # Not even where a mistake of ours would have let it in.
            page.evaluate("text => { document.body.insertAdjacentHTML('beforeend', text) }", SCREAM)
            page.evaluate("() => new Promise((done) => setTimeout(done, 0))")
            assert page.evaluate("window.ran") is None


def test_a_phone_shows_one_thing_at_a_time_and_finds_a_long_list_where_it_was_left(browser: Browser) -> None:
    devices = {f"board-{number:02d}": "socket://127.0.0.1:9" for number in range(30)}
    phone = {"width": 360, "height": 700}
    with serving(**devices) as running, looking(browser, f"{running.http}/", viewport=phone) as page:
        page.get_by_role("button", name="board-25").click()
        expect(page.locator("#name")).to_be_in_viewport()
        expect(page.locator("#fleet")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("button", name="Back to all devices").click()
        expect(page.locator("#fleet")).to_be_visible()
        expect(page.get_by_role("button", name="board-25")).to_be_in_viewport()


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_tabs_are_used_by_the_keyboard_and_the_view_of_a_cluster_says_that_there_is_none(browser: Browser) -> None:
    with serving(demo="sim:?telemetry=0") as running, looking(browser, f"{running.http}/#/demo/live") as page:
        expect(page.locator("#state")).not_to_be_empty()
        page.locator("#tab-live").focus()
        for key, tab in (
            ("ArrowRight", "files"),
            ("End", "terminal"),
            ("ArrowRight", "live"),
            ("ArrowLeft", "terminal"),
        ):
            page.keyboard.press(key)
            expect(page.locator(f"#tab-{tab}")).to_be_focused()
            expect(page.locator(f"#{tab}")).to_be_visible()
        page.keyboard.press("Home")
        expect(page.locator("#tab-live")).to_have_attribute("aria-selected", "true")
        page.goto(f"{running.http}/#/cluster")
        expect(page.locator("#cluster-said")).to_contain_text("this server is not in a cluster")
        expect(page.locator("#to-sql")).to_be_visible()
        expect(page.locator("#to-cluster")).to_be_hidden()


def test_who_signs_in_sees_what_is_theirs(browser: Browser, tmp_path: Path) -> None:
    with guarding() as guarded, looking(browser, f"{guarded.gateway.url}/") as page:
        expect(page.locator("#connection")).to_have_text("not signed in")
        sign_in(page, "ff_wrong")
        expect(page.locator("#sign-in-said")).to_contain_text("not valid here")
        sign_in(page, guarded.tokens["operator"])
        expect(page.locator(".card .name")).to_have_text(["lab-1"])
        expect(page.locator("#who")).to_have_text("operator")
        expect(page.locator("#charts canvas").first).to_be_visible()
        page.get_by_role("tab", name="Files").click()
        with page.expect_download() as downloading:
            page.get_by_role("row", name=re.compile("readings.csv")).get_by_role("link", name="CSV").click()
        downloading.value.save_as(tmp_path / "readings.csv")
        assert (tmp_path / "readings.csv").read_bytes()[:4] == b"time"
        page.locator("#upload-file").set_input_files({"name": "new.txt", "mimeType": "", "buffer": b"x"})
        expect(page.locator("#uploads")).to_contain_text("written and verified")
        page.get_by_role("tab", name="Terminal").click()
        page.get_by_role("button", name="Open the REPL").click()
        expect(page.locator("#terminal-said")).to_contain_text("Connected")
        page.reload()  # the token is kept for the tab
        expect(page.locator("#who")).to_have_text("operator")
        assert guarded.tokens["operator"] not in page.url
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#sign-in")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_what_may_not_be_done_is_not_offered_and_who_is_revoked_is_told(browser: Browser) -> None:
    with guarding() as guarded, looking(browser, f"{guarded.gateway.url}/#/lab-1/terminal") as page:
        sign_in(page, guarded.tokens["reader"])
        expect(page.locator("#not-granted")).to_be_visible()
        expect(page.get_by_role("tab", name="Terminal")).to_be_hidden()
        page.get_by_role("tab", name="Files").click()
        expect(page.get_by_role("row", name=re.compile("readings.csv"))).to_be_visible()
        expect(page.locator("#upload")).to_be_hidden()
        guarded.revoke("reader")
        expect(page.locator("#sign-in-said")).to_contain_text("no longer valid")
        assert page.locator(".card").count() == 0


def test_a_device_that_only_prints_has_no_files_and_is_not_asked_for_them_again_and_again(browser: Browser) -> None:
    line = b'{"level": 1.5}\n'
    with Speaker(line) as tank, Speaker(line) as gps, serving(tank=tank.url, gps=f"{gps.url}?kind=lines") as running:
        with looking(browser, f"{running.http}/#/gps/files") as page:
            expect(page).to_have_url(re.compile("#/gps/live$"))
            expect(page.locator("#tab-files")).to_be_hidden()
            expect(page.locator("#tab-terminal")).to_be_hidden()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{running.http}/#/tank/files")
            expect(page.locator("#files-said")).to_contain_text("a program is running on it, or it is not MicroPython")
            # It was in use by the request itself, so it may be asked once more when that is over.
            page.wait_for_function(
                "() => new Promise(done => { let left = 60;"
                " const frame = () => --left ? requestAnimationFrame(frame) : done(true); frame(); })"
            )
            expect(page.locator("#files-said")).to_contain_text("a program is running on it, or it is not MicroPython")
            assert 1 <= sum("/tank/files/" in each for each in asked) <= 3, asked
