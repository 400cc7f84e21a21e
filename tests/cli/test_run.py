"""`exec`, `run`, `eval`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.servers import serving

Run = Callable[..., Result]

# For Python to start on a busy computer.
SECONDS = 60.0


def test_output_is_shown_line_by_line(run: Run) -> None:
    result = run("exec", "demo", "for i in range(3): print('line', i)")
    assert (result.exit_code, result.stdout) == (0, "line 0\nline 1\nline 2\n")


@pytest.mark.parametrize("command", [["exec", "demo"], ["run"]])
def test_code_comes_from_stdin(run: Run, command: list[str]) -> None:
    assert run(*command, "-", input="print(6 * 7)\n").stdout == "42\n"


def test_output_is_json_lines(run: Run) -> None:
    rows = [json.loads(line) for line in run("exec", "demo", "print(1)\nprint(2)", "--json").stdout.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [(0, "1"), (1, "2")]


@pytest.mark.parametrize(
    ("command", "printed"),
    [(["exec", "demo", "print('before')\n1/0"], "before\n"), (["run", "program.py"], "1\n"), (["eval", "1 / 0"], "")],
)
def test_an_exception_is_the_boards_own_traceback(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], printed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("print(1)\n1/0\n")
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, printed)
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.rstrip().splitlines()[-1].startswith("ZeroDivisionError")


def test_a_local_file_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def f(x):\n    return x * 7\n\nprint(f(6))\nprint('ä')\n", encoding="utf-8")
    result = run("run", str(tmp_path / "program.py"), "demo")
    assert (result.exit_code, result.stdout) == (0, "42\nä\n")
    assert run("run", str(tmp_path / "program.py")).stdout == "42\nä\n"
    assert run("run", "demo", str(tmp_path / "program.py")).stdout == "42\nä\n"


@pytest.mark.parametrize("command", [["exec", "-"], ["run", "-"], ["repl"]])
def test_a_closed_standard_input_is_an_error_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, location: str, command: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setenv("FASTFLIGHT_SERVER", location)
    with pytest.raises(SystemExit) as ended:
        app(command)
    assert ended.value.code == 1


def test_a_program_that_cannot_be_read_is_refused_with_its_name(run: Run, tmp_path: Path) -> None:
    missing = run("run", str(tmp_path / "missing.py"))
    assert (missing.exit_code, "missing.py" in missing.stderr) == (1, True)
    (tmp_path / "program.mpy").write_bytes(b"M\x06\xff\x1f")
    binary = run("run", str(tmp_path / "program.mpy"))
    assert (binary.exit_code, "program.mpy" in binary.stderr) == (1, True)


@pytest.mark.parametrize("local", [False, True], ids=["server", "board"])
def test_ctrl_c_stops_the_program_on_the_board(tmp_path: Path, local: bool) -> None:
    (tmp_path / "program.py").write_text(
        "import time\ntry:\n  while True:\n    print('on')\n    time.sleep(0.01)\n"
        "finally:\n  open('stopped', 'w').close()\n"
    )
    url = f"sim:?files={tmp_path}&telemetry=0"
    with serving({"demo": url}) as running:
        environment = {**os.environ, "FASTFLIGHT_SERVER": running.location}
        options = ["--device", url] if local else []
        command = [sys.executable, "-m", "fastflight", "run", str(tmp_path / "program.py"), *options]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        limit = threading.Timer(SECONDS, child.kill)
        limit.start()
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"on\n"
            child.send_signal(signal.SIGINT)
            _, said = child.communicate()
            assert (child.returncode, said) == (130, b"interrupted\n")
            with FastFlightClient(running.location) as client:
                assert "/stopped" in [entry.path for entry in client.ls("demo")]
        finally:
            limit.cancel()
            child.kill()
            child.communicate()


def test_the_value_of_an_expression(run: Run) -> None:
    assert run("eval", "demo", "'a' * 3").stdout == "'aaa'\n"
    assert run("eval", "6 * 7  # the answer").stdout == "42\n"
    assert json.loads(run("eval", "1, 2", "--json").stdout)["text"] == "(1, 2)"
