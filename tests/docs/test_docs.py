"""What the pages on single subjects show is what happens."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.cli.main import app
from tests.docs.notebooks import record_yesterday
from tests.support.servers import config, serving

ROOT = Path(__file__).parents[2]
TRANSFERS = (ROOT / "docs" / "transfers.md").read_text()
SESSIONS = (ROOT / "docs" / "sessions.md").read_text()
RECORDINGS = (ROOT / "docs" / "recordings.md").read_text()
DEFAULT_SERVER = "grpc://127.0.0.1:8815"

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)")


@pytest.fixture
def server() -> Iterator[str]:
    with serving() as running:
        yield running.location


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_folders_are_copied_as_is_shown(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app" / "lib").mkdir(parents=True)
    for path, content in {"main.py": "import lib.a", "lib/a.py": "print(1)", "lib/__init__.py": ""}.items():
        (tmp_path / "app" / path).write_text(content)
    _, transcript = blocks("console", TRANSFERS)
    check(transcript, server)


def test_the_python_that_copies_runs(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python", TRANSFERS)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code.replace(DEFAULT_SERVER, server), {})
    assert (tmp_path / "backup" / "main.py").read_text() == "print('hello')"


def test_the_python_that_follows_runs(server: str) -> None:
    (code,) = blocks("python", SESSIONS)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code.replace(DEFAULT_SERVER, server), {})
    # The board may print a line of its own right after its prompt.
    assert "temperature" in out.getvalue() and "\r\n42\r\n>>> " in out.getvalue()


def test_the_python_that_replays_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record_yesterday(tmp_path / "kept", missing=range(0))
    settings = config(recordings=RecordingSettings(folder=tmp_path / "kept"))
    (code,) = blocks("python", RECORDINGS)
    out = io.StringIO()
    with open_server(settings) as running, contextlib.redirect_stdout(out):
        exec(code.replace(DEFAULT_SERVER, running.location), {})
    assert out.getvalue().startswith("demo 1440 kept\n") and "15.33 []" in " ".join(out.getvalue().split())


def check(transcript: str, server: str) -> None:
    """Run the commands of a transcript and compare what they print."""
    for shown in re.split(r"(?m)^\$ ", transcript)[1:]:
        command, _, output = shown.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "fastflight"
        result = CliRunner().invoke(app, arguments, env={"FASTFLIGHT_SERVER": server})
        assert TIME.sub("DATE", result.output) == TIME.sub("DATE", output), command
