"""`fastflight collect` in front of servers: logs of several devices, and a server that restarts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fastflight.cli.main import app
from tests.support.commands import FASTFLIGHT, Command
from tests.support.servers import serving
from tests.support.waiting import until

NAMES = ("lab-1", "lab-2")


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """The logs of the boards, with one line each."""
    paths = [tmp_path / name / "log.csv" for name in NAMES]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        path.write_text(f"{number},21.5\n")
    return paths


def server(folder: Path, address: str = "grpc://127.0.0.1:0") -> Any:
    return serving({name: f"sim:?files={folder / name}&telemetry=0" for name in NAMES}, location=address)


@pytest.fixture
def location(logs: list[Path], tmp_path: Path) -> Iterator[str]:
    with server(tmp_path) as running:
        yield running.location


def test_the_logs_of_several_devices(location: str, logs: list[Path], tmp_path: Path) -> None:
    arguments = ["collect", "lab-*:/log.csv", "-o", str(tmp_path / "to"), "--server", location]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [(tmp_path / "to" / name / "log.csv/0000001.csv").read_text() for name in NAMES] == ["0,21.5\n", "1,21.5\n"]
    assert not any(path.exists() for path in logs)


@pytest.mark.parametrize("every", [[], ["--every", "1"]], ids=["once", "every minute"])
def test_a_wrong_name_or_address_ends_it_at_once(location: str, tmp_path: Path, every: list[str]) -> None:
    for log, address in (("x-*:/log.csv", location), ("lab-*:/log.csv", "grpc://127.0.0.1:9")):
        arguments = ["collect", log, "-o", str(tmp_path / "to"), "--server", address, *every]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (1, 3), result.output
        assert result.stderr.startswith("error: ") and "tried again" not in result.stderr


@pytest.mark.parametrize("log", ["lab-*:/log.csv", "lab-1:/log.csv"], ids=["glob", "name"])
def test_a_server_that_restarts_is_tried_again(logs: list[Path], tmp_path: Path, log: str) -> None:
    parts = tmp_path / "to" / "lab-1" / "log.csv"
    with server(tmp_path) as running:
        address = running.location
        arguments = ["collect", log, "-o", "to", "--every", "0.01", "--server", address]
        command = Command(
            [*FASTFLIGHT, *arguments],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ,
        )
        until((parts / "0000001.csv").exists)
        until(lambda: not list(logs[0].parent.glob("log.csv*")))
    try:
        assert command.stderr is not None
        for _ in range(2):
            line = command.stderr.readline()
            while line != "It is tried again in 0.6 s\n":
                assert line.startswith("error: ")
                line = command.stderr.readline()
        logs[0].write_text("2,21.6\n")
        with server(tmp_path, address):
            until((parts / "0000002.csv").exists)
            until(lambda: not list(logs[0].parent.glob("log.csv*")))
            command.send_signal(signal.SIGINT)
            command.communicate(timeout=60)
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 130
    assert (parts / "0000002.csv").read_text() == "2,21.6\n"
