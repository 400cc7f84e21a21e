"""`fastflight plot` in front of the simulated board."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fastflight.app.config import RecordingSettings
from fastflight.cli.plot import joined, require_values, without_gaps
from fastflight.client import FastFlightClient
from fastflight.errors import DataError
from tests.support.commands import FASTFLIGHT, Command
from tests.support.servers import ready_server
from tests.support.waiting import until

from .conftest import Run


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A board that prints and is recorded: other tests take its program away."""
    folder = tmp_path_factory.mktemp("recordings")
    with ready_server(recordings=RecordingSettings(folder=folder, sync_ms=20), record=["demo"]) as location:
        yield location


def test_a_picture_of_two_columns(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "weather.png"
    arguments = ("--column", "temperature", "--column", "humidity", "--seconds", "1", "-o", str(path))
    result = run("plot", "demo", *arguments)
    assert (result.exit_code, result.stdout.startswith(f"{path}: ")) == (0, True), result.output
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_part_of_a_recording(run: Run, location: str, tmp_path: Path) -> None:
    path = tmp_path / "recorded.png"
    with FastFlightClient(location) as client:
        until(lambda: any(each.rows > 5 for each in client.recordings()))
    result = run("plot", "demo", "--column", "temperature", "--from", "0", "-o", str(path))
    assert result.exit_code == 0 and path.read_bytes().startswith(b"\x89PNG"), result.output
    path.unlink()
    refused = [
        (("--to", "2001-01-01"), 1, "no line with temperature in this part of the recording"),
        (("--from", "0", "--since", "3"), 2, "--since is for live output"),
        (("--from", "noon"), 2, "neither a time"),
    ]
    for arguments, code, says in refused:
        result = run("plot", "demo", "--column", "temperature", *arguments, "-o", str(path))
        assert (result.exit_code, says in result.output, path.exists()) == (code, True, False), result.output


@pytest.mark.parametrize("table", [pa.table({"time": [1]}), pa.table({"time": [1], "level": pa.nulls(1)})])
def test_a_column_without_values_is_named(table: pa.Table) -> None:
    with pytest.raises(DataError, match="tank: no line in 1 s has level"):
        require_values(table, ["level"], "tank", "in 1 s")


def test_a_column_that_changes_its_type_is_named() -> None:
    with pytest.raises(DataError, match="tank: a column has changed its type .*open"):
        joined([pa.table({"open": [True]}), pa.table({"open": ["yes"]})], "tank")


def test_no_line_is_drawn_across_a_gap() -> None:
    def parts(*milliseconds: int) -> list[list[int]]:
        return [part.tolist() for part in without_gaps(np.array(milliseconds, "datetime64[ms]"))]

    assert parts(0, 100, 200, 900, 1000) == [[0, 1, 2, 3, 4]]  # shorter than a second
    assert parts(0, 1000, 5000, 6000, 7000, 20_000) == [[0, 1], [2, 3, 4], [5]]
    assert parts(0) == [[0]]


def test_no_such_values(run: Run, tmp_path: Path) -> None:
    result = run("plot", "demo", "--column", "temperature", "--format", "csv", "--seconds", "0.1")
    assert (result.exit_code, "--schema" in result.output) == (2, True)
    path = tmp_path / "none.png"
    arguments = ("--format", "csv", "--schema", "temperature=double", "--column", "temperature", "--seconds", "0.3")
    result = run("plot", "demo", *arguments, "-o", str(path))
    assert (result.exit_code, "fastflight tail" in result.stderr, path.exists()) == (1, True, False)
    result = run("plot", "demo", "--column", "temprature", "--seconds", "1", "-o", str(path))
    assert (result.exit_code, "Did you mean 'temperature'" in result.stderr, path.exists()) == (1, True, False)


def test_ctrl_c_draws_the_rows_until_then(location: str, tmp_path: Path) -> None:
    arguments = ["plot", "demo", "--column", "temperature", "--seconds", "600", "-o", "x.png", "--server", location]
    command = [*FASTFLIGHT, *arguments]
    child = Command(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert child.stderr is not None
    assert child.stderr.readline() == "demo: rows for 600 s; Ctrl-C draws those until then\n"
    child.send_signal(signal.SIGINT)
    shown, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "interrupted: the plot shows the rows until then\n")
    assert shown.startswith("x.png: ")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
