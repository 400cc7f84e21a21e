"""`fastflight plot` in front of the simulated board."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import FASTFLIGHT, Command

from .conftest import Run, demo_server


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    """A board that prints: other tests take its program away."""
    yield from demo_server()


def test_a_picture_of_two_columns(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "weather.png"
    arguments = ("--column", "temperature", "--column", "humidity", "--seconds", "1", "-o", str(path))
    result = run("plot", "demo", *arguments)
    assert (result.exit_code, result.stdout.startswith(f"{path}: ")) == (0, True), result.output
    assert path.read_bytes().startswith(b"\x89PNG")


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
