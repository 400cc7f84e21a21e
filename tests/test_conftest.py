"""The suite's own fixtures: leaks fail, missing targets are skipped by name, and fail where CI must have them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SUITE = """
import signal
import socket
import subprocess
import sys

kept = []


def test_that_leaks():
    kept.append(socket.socket())


def test_that_fails_and_holds_a_socket():
    here = socket.socket()
    assert here is None


def test_that_is_clean():
    socket.socket().close()


def test_on_the_microbit(microbit):
    pass


def test_of_ctrl_c():
    code = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode != 0
"""


def run_suite(
    folder: Path, *options: str, started: Callable[[], object] | None = None, **environment: str
) -> list[str]:
    """Run the suite above with this repository's conftest on a machine that has no programs; its summary lines."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -rA -p no:cacheprovider\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        # The suite needs no plugins, which take longer to load than it takes to run.
        env={**os.environ, "COLUMNS": "400", "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=started,
    )
    assert not result.stderr
    return result.stdout.partition("short test summary info")[2].splitlines()


def line_about(summary: list[str], word: str, outcome: str) -> str:
    found = [line for line in summary if line.startswith(outcome) and word in line]
    assert found, "\n".join(summary)
    return found[0]


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are read from /proc")
def test_a_leak_fails_the_test_that_left_it_and_no_other(tmp_path: Path) -> None:
    summary = run_suite(tmp_path, "-k", "that")
    assert "the test left behind" in line_about(summary, "test_that_leaks", "ERROR")
    line_about(summary, "test_that_is_clean", "PASSED")
    line_about(summary, "test_that_fails", "FAILED")
    assert sum(line.startswith("ERROR") for line in summary) == 1


@pytest.mark.parametrize(("ci", "outcome"), [("", "SKIPPED"), ("true", "ERROR")])
def test_a_missing_target_is_skipped_by_name_and_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    summary = run_suite(tmp_path, "-k", "on_the", CI=ci)
    line_about(summary, "qemu-system-arm is not on PATH", outcome)


def test_each_board_on_the_desk_gets_the_board_suite() -> None:
    boards = ("socket://127.0.0.1:9", "/dev/other")
    suite = ["tests/board/test_mount.py", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
    options = [word for board in boards for word in ("--device", board)]
    top = Path(__file__).parents[1]
    listed = subprocess.run([sys.executable, "-m", "pytest", *suite, *options], cwd=top, capture_output=True, text=True)
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    runs = {
        board: {test.removesuffix(f"[{board}]") for test in tests if test.endswith(f"[{board}]")} for board in boards
    }
    assert runs[boards[0]] and runs[boards[0]] == runs[boards[1]]
    # A board on the desk keeps its main.py: a test that replaces it runs on none.
    (left_out,) = [test for test in tests if not test.endswith(tuple(f"[{board}]" for board in boards))]
    assert left_out.endswith("::test_main_py_of_the_board_does_not_run[NOTSET]")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_a_suite_in_the_background_can_interrupt_what_it_starts(tmp_path: Path) -> None:
    summary = run_suite(tmp_path, "-k", "ctrl_c", started=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    line_about(summary, "test_of_ctrl_c", "PASSED")
