"""`deploy` to two boards: accepted, given up, and what a board has afterwards."""

from __future__ import annotations

import binascii
import json
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import cast

import pytest
from click.testing import Result

from fastflight.cli.deployment import LAUNCHER, Deployment, Health
from fastflight.client import FastFlightClient
from fastflight.client.board import Board
from fastflight.errors import BusyError, Stopped
from tests.support.servers import ready_server, serving
from tests.support.waiting import until

Run = Callable[..., Result]

NAMES = ("lab-1", "lab-2", "lab-3")
HEALTHY = ("--healthy", "ready", "--within", "30", "--json", "--devices", "*")
AGENT = resources.files("fastflight.device") / "agent" / "fastflight_agent.py"
# A program that goes on, and runs the agent.
GOES_ON = "import time, fastflight_agent\nopen('/started','w').write('%d' % V)\nwhile True:\n    time.sleep_ms(10)\n"


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the boards."""
    return tmp_path_factory.mktemp("boards")


@pytest.fixture(scope="module")
def location(boards: Path) -> Iterator[str]:
    for name in NAMES:
        (boards / name).mkdir()
    urls = {name: f"sim:?files={boards / name}&telemetry=0" for name in NAMES}
    with ready_server(urls) as location:
        yield location


@pytest.fixture
def opened(location: str) -> str:
    """The server that commands call. It has no board named demo."""
    return location


@pytest.fixture
def program(location: str, boards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the program to deploy, and boards with an old program."""
    with FastFlightClient(location) as client:
        for name in NAMES:
            client.ls(name)  # its last start is over
            for path in (boards / name).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (boards / name / "main.py").write_text("open('/started','w').write('old')\n")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "app", 1)
    return tmp_path / "app"


def write(folder: Path, version: int, said: str = "ready") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "part.py").write_text(f"V = {version}\n")
    (folder / "main.py").write_text(f"import part\nopen('/started','w').write('%d' % part.V)\nprint('all {said}')\n")


def results(run: Run, *options: str, healthy: tuple[str, ...] = HEALTHY) -> dict[str, str]:
    result = run("deploy", "app", *healthy, *options)
    reports = json.loads(result.stdout)
    assert result.exit_code == int(any(report["result"] != "accepted" for report in reports)), result.stderr
    return {report["device"]: report["result"] for report in reports}


def started(board: Path) -> str:
    """What the board has started last."""
    return until(lambda: (board / "started").exists() and (board / "started").read_text())


def restart(location: str, name: str, board: Path) -> str:
    """Restart a board, and return what it starts."""
    (board / "started").unlink(missing_ok=True)
    with FastFlightClient(location) as client:
        client.reset(name, interrupt=True)
    return started(board)


def test_all_boards_get_it_and_keep_it(run: Run, location: str, boards: Path, program: Path) -> None:
    assert results(run) == dict.fromkeys(NAMES, "accepted")
    write(program, 2)
    assert results(run, "--devices", "lab-*") == dict.fromkeys(NAMES, "accepted")
    for name in NAMES:
        assert restart(location, name, boards / name) == "2"
        files = {str(path.relative_to(boards / name)) for path in (boards / name).rglob("*") if path.is_file()}
        kept = {"deploy/accepted-2", "deploy/2/main.py", "deploy/2/part.py", "deploy/before.py"}
        assert files == kept | {"main.py", "started"}


def test_a_canary_that_is_not_healthy_goes_back_and_the_others_do_not_try(
    run: Run, location: str, boards: Path, program: Path
) -> None:
    results(run)
    write(program, 2, "broken")
    options = ("--canary", "lab-2", "--within", "1")
    assert results(run, *options) == {"lab-2": "back to the old version"} | dict.fromkeys(
        ("lab-1", "lab-3"), "not tried"
    )
    for name in NAMES:
        assert started(boards / name) == "1"
        assert restart(location, name, boards / name) == "1"
    write(program, 3)
    assert results(run) == dict.fromkeys(NAMES, "accepted")


def test_a_first_deployment_that_fails_leaves_the_old_program(
    run: Run, location: str, boards: Path, program: Path
) -> None:
    write(program, 1, "broken")
    assert results(run, "--within", "1", "--devices", "lab-1") == {"lab-1": "back to the old version"}
    assert restart(location, "lab-1", boards / "lab-1") == "old"


def test_a_step_that_fails_starts_the_old_program_again(run: Run, boards: Path, program: Path) -> None:
    (boards / "lab-1" / "deploy").write_text("no folder")
    assert results(run, "--devices", "lab-1") == {"lab-1": "failed"}
    assert started(boards / "lab-1") == "old"


def test_names_that_are_no_version_are_left_alone(run: Run, location: str, boards: Path, program: Path) -> None:
    """Whoever put them there: neither the command nor the launcher on the board fails over them."""
    names = {"accepted-x", "accepted-", "accepted-²", "²", "-1", "trials"}
    (boards / "lab-1" / "deploy").mkdir()
    for name in names:
        (boards / "lab-1" / "deploy" / name).write_text("")
    assert results(run, "--devices", "lab-1") == {"lab-1": "accepted"}
    assert restart(location, "lab-1", boards / "lab-1") == "1"
    assert names <= {path.name for path in (boards / "lab-1" / "deploy").iterdir()}


def test_a_trial_is_started_once(run: Run, location: str, boards: Path, program: Path) -> None:
    results(run, "--devices", "lab-1")
    with FastFlightClient(location) as client:
        list(client.exec("lab-1", "pass", interrupt=True))  # the start of what was accepted is over
    (boards / "lab-1" / "deploy" / "9").mkdir()
    (boards / "lab-1" / "deploy" / "9" / "main.py").write_text("open('/started','w').write('9')\n")
    (boards / "lab-1" / "deploy" / "trial").write_text("9")
    assert restart(location, "lab-1", boards / "lab-1") == "9"
    assert restart(location, "lab-1", boards / "lab-1") == "1"


def test_a_table_says_what_each_board_did(run: Run, program: Path) -> None:
    result = run("deploy", "app", "--healthy", "ready", "--devices", "lab-1")
    assert result.stdout.split() == ["device", "files", "moved", "result", "why", "lab-1", "2", "accepted", "-"]


HEALTH = ("--healthy", "ready")


@pytest.mark.parametrize(
    ("make", "options", "code"),
    [
        (lambda app: (app / "main.py").unlink(), HEALTHY, 2),
        (lambda app: (app / "boot.py").write_text(""), HEALTHY, 2),
        (lambda app: None, HEALTH, 2),  # several devices must be named
        (lambda app: None, ("--devices", "*"), 2),
        (lambda app: None, (*HEALTH, "--devices", "x*"), 1),
        (lambda app: None, (*HEALTHY, "--canary", "lab-4"), 1),
    ],
)
def test_what_is_refused_touches_no_board(
    run: Run, boards: Path, program: Path, make: Callable[[Path], object], options: tuple[str, ...], code: int
) -> None:
    make(program)
    assert run("deploy", "app", *options).exit_code == code
    assert not (boards / "lab-1" / "deploy").exists()


# With an agent last: the server would look for it on these boards, and wait, in all tests that follow.


def test_a_version_that_raises_while_it_boots_shows_its_traceback(
    run: Run, location: str, boards: Path, program: Path
) -> None:
    (program / "main.py").write_text("def start():\n    raise ValueError('no sensor')\n\nprint('on')\nstart()\n")
    arguments = ("deploy", "app", "--healthy", "ready", "--devices", "lab-1")
    (report,) = json.loads(run(*arguments, "--json").stdout)
    assert (report["result"], report["why"]) == ("back to the old version", "it raised ValueError: no sensor")
    lines = report["traceback"].splitlines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ValueError: no sensor")
    assert any("line 2, in start" in line for line in lines)
    result = run(*arguments)
    assert result.exit_code == 1
    # After the table, so that a long one does not hide the result of a board.
    assert "it raised ValueError: no sensor" in result.stdout
    assert f"lab-1: {report['traceback']}" in result.stderr
    assert restart(location, "lab-1", boards / "lab-1") == "old"


def test_the_agent_is_the_sign_of_health(run: Run, location: str, boards: Path, program: Path) -> None:
    healthy = ("--by-agent", "--json", "--devices", "lab-1")
    (program / "fastflight_agent.py").write_bytes(AGENT.read_bytes())
    (program / "main.py").write_text(f"V = 1\n{GOES_ON}")
    assert results(run, healthy=healthy) == {"lab-1": "accepted"}
    assert restart(location, "lab-1", boards / "lab-1") == "1"
    with FastFlightClient(location) as client:
        list(client.exec("lab-1", "pass", interrupt=True))


class Restarted:
    """A board that prints `said` when it restarts, and then nothing. Its agent says what `asked` is, or raises it."""

    name = "lab-1"

    def __init__(self, said: bytes, asked: str | Exception) -> None:
        self.said, self.asked = [said], asked

    def write_bytes(self, path: str, content: bytes) -> None:
        assert path == "/deploy/trial"

    def terminal(self) -> Restarted:
        return self

    def send(self, keys: bytes) -> None:
        assert keys == b"\x04"

    def receive(self) -> list[tuple[bool, bytes]]:
        if not self.said:
            raise Stopped("the time is up")
        return [(True, self.said.pop())]

    def cancel(self) -> None:
        pass

    settle = cancel

    def info(self) -> dict[str, str]:
        if isinstance(self.asked, Exception):
            raise self.asked
        return {"capabilities": "agent" if self.asked else "none"}

    def exec(self, code: str) -> list[dict[str, str | Exception]]:
        return [{"text": self.asked}]


RAISED = b'Traceback (most recent call last):\r\n  File "main.py", line 2, in start\r\nValueError: no sensor\r\n'
CRC = binascii.crc32(b"")
BUSY = BusyError("a program is running", holder="the board's own program")
# What the board prints and its agent says, the signs of health, why it is not healthy, and if there is a traceback.
TRIALS = [
    (b"all ready\r\n", "", (True, False), None, False),
    (b"all broken\r\n>>> ", "", (True, False), "it did not print 'ready' within 0 s, but: all broken >>>", False),
    (RAISED + b">>> ", "", (True, False), "it raised ValueError: no sensor", True),
    (RAISED + b">>> ", "", (False, True), "it raised ValueError: no sensor", True),
    (RAISED + b"all ready\r\n", "", (True, False), None, False),  # it goes on
    (RAISED + b"slow\r\n", "", (True, False), "it did not print 'ready' within 0 s, but: ", True),
    (b"", f"/deploy/0/main.py {CRC}", (False, True), None, False),
    (b"all ready\r\n", f"/deploy/0/main.py {CRC}", (True, True), None, False),
    (b"", f"/deploy/0/main.py {CRC + 1}", (False, True), "another program runs", False),
    (b"", f"/deploy/1/main.py {CRC}", (False, True), "another program runs", False),
    (b"all ready\r\n>>> ", "", (True, True), "its program has ended, or runs without the agent", False),
    (b"", BUSY, (False, True), "did not answer in time: a program is running", False),
]


@pytest.mark.parametrize(("said", "asked", "signs", "why", "has_traceback"), TRIALS)
def test_why_a_version_is_not_healthy(
    tmp_path: Path, said: bytes, asked: str | Exception, signs: tuple[bool, bool], why: str | None, has_traceback: bool
) -> None:
    (tmp_path / "main.py").write_text("")
    board = cast(Board, Restarted(said, asked))
    health = Health("ready" if signs[0] else None, signs[1], 0.0)
    trouble = Deployment(tmp_path, ()).attempt(board, board, health)
    if why is None:
        assert trouble is None
    else:
        assert trouble is not None and why in trouble.why
        assert trouble.traceback == (RAISED.decode().replace("\r\n", "\n").strip() if has_traceback else "")


@pytest.mark.firmware
def test_the_launcher_runs_on_the_real_vm(webassembly_without_raw_paste: str) -> None:
    with serving({"vm": webassembly_without_raw_paste}) as running:
        with FastFlightClient(running.location) as client:
            main = "import part\nprint('version', part.V)\n"
            accepted = {"7/main.py": main, "7/part.py": "V = 7\n", "accepted-7": ""}
            for folder in ("/deploy", "/deploy/7", "/deploy/8"):
                client.mkdir("vm", folder)
            for path, text in {**accepted, "8/main.py": "print('on trial')\n", "trial": "8", "accepted-3": ""}.items():
                client.exec("vm", f"open('/deploy/{path}','w').write({text!r})").to_arrow()
            said = [client.exec("vm", LAUNCHER).to_arrow()["text"].to_pylist() for _ in range(2)]
    assert said == [["on trial"], ["version 7"]]
