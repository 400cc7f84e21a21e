"""`exec`, `run`, `eval`."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.commands import FASTFLIGHT, Command
from tests.support.servers import serving

Run = Callable[..., Result]

# For Python to start on a busy computer.
SECONDS = 60.0


@pytest.mark.parametrize("command", [["exec", "-"], ["run", "-"], ["repl"]])
def test_a_closed_standard_input_is_an_error_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, location: str, command: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setenv("FASTFLIGHT_SERVER", location)
    with pytest.raises(SystemExit) as ended:
        app(command)
    assert ended.value.code == 1


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
        command = [*FASTFLIGHT, "run", str(tmp_path / "program.py"), *options]
        child = Command(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
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
