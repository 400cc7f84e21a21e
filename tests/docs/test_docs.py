"""What the pages on single subjects, and the notebooks, show is what happens."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.recording_settings import RecordingSettings
from fastflight.app.settings import ServeSettings
from fastflight.cli.main import app
from fastflight.log import Store
from fastflight.sources.recorded_rows import BEGAN, LOG_SCHEMA, log_batch
from fastflight.transport.chunk_buffer import Chunk

ROOT = Path(__file__).parents[2]
TRANSFERS = (ROOT / "docs" / "transfers.md").read_text()
SESSIONS = (ROOT / "docs" / "sessions.md").read_text()
RECORDINGS = (ROOT / "docs" / "recordings.md").read_text()
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
LIVE = ROOT / "docs" / "live.ipynb"
DEFAULT_SERVER = "grpc://127.0.0.1:8815"

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)")


@pytest.fixture
def server() -> Iterator[str]:
    with open_server(ServeSettings("grpc://127.0.0.1:0")) as running:
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
    assert "temperature" in out.getvalue() and out.getvalue().endswith("42\r\n>>> \n")


def test_the_python_that_replays_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record_yesterday(tmp_path / "kept")
    settings = ServeSettings("grpc://127.0.0.1:0", recordings=RecordingSettings(tmp_path / "kept"))
    asked, kept_in = blocks("python", RECORDINGS)
    out = io.StringIO()
    with open_server(settings) as running, contextlib.redirect_stdout(out):
        exec(asked.replace(DEFAULT_SERVER, running.location), {})
    assert out.getvalue().startswith("demo 1440 kept\n") and "25.9 []" in " ".join(out.getvalue().split())
    lines = io.StringIO()
    with contextlib.redirect_stdout(lines):
        exec(
            kept_in,
            {
                "schema": LOG_SCHEMA,
                "batch": log_batch([Chunk(i, (1_700_000_000 + i) * 10**9, "rx", b".") for i in range(80)], {}),
            },
        )
    # 240 rows and 20 that were lost on the way, from number 100 on.
    assert lines.getvalue() == "100 60\n160 179 never written \n180 80\n"


def check(transcript: str, server: str) -> None:
    """Run the commands of a transcript and compare what they print."""
    for shown in re.split(r"(?m)^\$ ", transcript)[1:]:
        command, _, output = shown.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "fastflight"
        result = CliRunner().invoke(app, arguments, env={"FASTFLIGHT_SERVER": server})
        assert TIME.sub("DATE", result.output) == TIME.sub("DATE", output), command


EXECUTE = """
import json, sys, nbclient, nbformat
cells = nbclient.execute(nbformat.read(sys.argv[1], 4)).cells
print(json.dumps([cell["outputs"] for cell in cells if cell.get("outputs")]))
"""


def run_notebook(server: str, folder: Path, notebook: Path = NOTEBOOK) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a kernel and its sockets take their time to go."""
    return subprocess.run(
        [sys.executable, "-c", EXECUTE, str(notebook)],
        env={**os.environ, "FASTFLIGHT_SERVER": server, "IPYTHONDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_notebook_runs(server: str, tmp_path: Path) -> None:
    done = run_notebook(server, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(json.loads(done.stdout)) >= 10


def record_yesterday(folder: Path) -> None:
    """A recording of a board that said a line each minute of yesterday."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    minutes = [(int((begin + timedelta(minutes=i)).timestamp()) * 10**9, 20 + i % 60 / 10) for i in range(24 * 60)]
    lines = [json.dumps({"ms": 60_000 * i, "temperature": celsius}) for i, (_, celsius) in enumerate(minutes)]
    chunks = [Chunk(i, minutes[i][0], "rx", line.encode() + b"\r\n") for i, line in enumerate(lines)]
    with Store(folder) as store:
        store.open("demo", LOG_SCHEMA).append(log_batch(chunks, {0: BEGAN})).result()


def test_the_live_notebook_draws_what_comes_and_what_was(tmp_path: Path) -> None:
    record_yesterday(tmp_path / "kept")
    settings = ServeSettings("grpc://127.0.0.1:0", recordings=RecordingSettings(tmp_path / "kept", ("demo",)))
    with open_server(settings) as running:
        done = run_notebook(running.location, tmp_path / "ipython", LIVE)
    assert done.returncode == 0, done.stderr[-3000:]
    printed, moving, told, replayed, drawn = json.loads(done.stdout)
    assert "'limit reached'" in printed[-1]["data"]["text/plain"]
    # One picture that was drawn anew, not one for each batch; and one of yesterday.
    assert [sorted(each["data"]) for each in (*moving, *drawn)] == [["image/png", "text/plain"]] * 2
    assert "'alignments': 1" in "".join(each["text"] for each in told)
    # The first line is set aside: nobody knows that it is whole.
    assert replayed[0]["text"] == "yesterday 1439 rows\n"


def test_the_notebook_needs_a_server(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        done = run_notebook(f"grpc://127.0.0.1:{holder.getsockname()[1]}", tmp_path)
    assert done.returncode != 0
    assert "FlightUnavailableError" in done.stderr


@pytest.mark.parametrize(
    ("notebook", "names"),
    [
        (NOTEBOOK, {"json", "os", "pandas", "pyarrow"}),
        (LIVE, {"IPython", "datetime", "json", "matplotlib", "os", "pyarrow"}),
    ],
    ids=["files", "live"],
)
def test_the_notebooks_do_without_fastflight(notebook: Path, names: set[str]) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert {name.split(".")[0] for name in re.findall(r"(?m)^(?:import|from) ([\w.]+)", source)} == names
