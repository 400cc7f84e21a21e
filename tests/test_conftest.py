"""The suite's own fixtures: leaks fail, missing targets are skipped by name, and fail where CI must have them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import running_target
from tests.support import targets

SUITE = """
import signal
import socket
import subprocess
import sys

from tests.support import leaks

leaks.GRACE_SECONDS = 0.2
kept = []


def test_that_leaks():
    kept.append(socket.socket())


def test_that_fails_and_holds_a_socket():
    here = socket.socket()
    assert here is None


def test_that_is_clean():
    socket.socket().close()


def test_of_ctrl_c():
    code = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode != 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are read from /proc")
def test_a_leak_fails_the_test_that_left_it_and_ctrl_c_reaches_what_is_started(tmp_path: Path) -> None:
    """Also in a suite that runs in the background of a shell, deaf to Ctrl-C."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -rA -p no:cacheprovider\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=tmp_path,
        # The suite needs no plugins, which take longer to load than it takes to run.
        env={**os.environ, "COLUMNS": "400", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    summary = result.stdout.partition("short test summary info")[2].splitlines()
    assert "the test left behind" in line_about(summary, "test_that_leaks", "ERROR")
    line_about(summary, "test_that_is_clean", "PASSED")
    line_about(summary, "test_that_fails", "FAILED")
    line_about(summary, "test_of_ctrl_c", "PASSED")
    assert sum(line.startswith("ERROR") for line in summary) == 1


def test_a_skip_that_is_not_listed_fails_the_run_in_ci(tmp_path: Path) -> None:
    for name in ("conftest.py", "skips.txt"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    skips = "\n".join(f"def test_{n}(): pytest.skip({why!r})" for n, why in enumerate(("needs /dev/full", "tired")))
    (tmp_path / "test_suite.py").write_text(f"import pytest\n{skips}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -rs -p no:cacheprovider\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=tmp_path,
        env={**os.environ, "CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1 and "skips.txt does not have: ['tired']" in result.stdout, result.stdout


def line_about(summary: list[str], word: str, outcome: str) -> str:
    found = [line for line in summary if line.startswith(outcome) and word in line]
    assert found, "\n".join(summary)
    return found[0]


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_target_is_skipped_by_name_and_fails_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome, match="qemu-system-arm is not on PATH"), running_target(targets.microbit()):
        pass
