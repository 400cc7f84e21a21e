"""The scripts as they are run: from their folder, by name, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import fastflight_benchmark
from fastflight.errors import TransportError
from fastflight_benchmark import mock, result
from fastflight_benchmark.peers.running import named_server
from fastflight_benchmark.processes import spawned
from fastflight_benchmark.run_benchmark import app
from tests.support.servers import serving

SOON = 60.0
FOLDER = Path(fastflight_benchmark.__file__).parent
RESULTS = FOLDER.parent / "docs" / "results"
SAID = {
    "start_flight_server": ["--device"],
    "run_benchmark": ["--suite", "--quick", "--runs", "--rows", "--clients", "--delays", "--compare", "--against"],
    "plot_benchmark_results": ["--output-dir"],
}


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, f"{script}.py", *arguments],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "160", "TERMINAL_WIDTH": "160"},
    )


def run(*arguments: str) -> tuple[int, str]:
    """Run the benchmark's command line in this process. Return its exit code, and what it printed, as one line."""
    done = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "COLUMNS": "160"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_each_script_explains_itself() -> None:
    running = {script: started(script, "--help") for script in SAID}
    for script, process in running.items():
        text = process.communicate()[0]
        assert process.returncode == 0
        assert all(word in text for word in SAID[script])


def test_wrong_arguments_are_said_in_words() -> None:
    flight, sql = str(RESULTS / "flight.json"), str(RESULTS / "sql.json")
    cases = [
        (["--rows", "40,many"], "--rows: 'many' is not a whole number"),
        (["--clients", "1,-1"], "--clients: -1 is not between 1 and 1000"),
        (["--suite", "sql", "--rows", "40"], "only the suite flight has it, not sql"),
        (["--suite", "flihgt"], "'flihgt' is not one of flight, requests, transfer"),
        (["--only", "rows"], "'rows' is not KEY=VALUE"),
        (["--output", str(FOLDER)], "cannot be written: Is a directory"),
        (["--compare", flight, sql], "a result of flight and one of sql have nothing in common"),
        (["--compare", flight, "missing.json"], "missing.json: cannot be read: No such file"),
        (["--against", "no-such-commit"], "--against no-such-commit: no such commit"),
        (["--against", "--upload-pack=x"], "no such commit"),
    ]
    for arguments, says in cases:
        code, text = run(*arguments)
        assert (code, says in text) == (2, True), text


def test_the_exit_code_says_whether_a_row_is_slower(tmp_path: Path) -> None:
    kept = result.load(RESULTS / "sql.json")
    for row in kept.rows:
        row.values = [None if value is None else 2 * value for value in row.values]
    result.save(tmp_path / "slower.json", kept)
    for new, code, says in ((RESULTS / "sql.json", 0, "0 of"), (tmp_path / "slower.json", 1, "are slower by more")):
        found, text = run("--compare", str(RESULTS / "sql.json"), str(new))
        assert (found, says in text) == (code, True), text


@pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGTERM")
def test_a_run_that_is_stopped_ends_what_it_started(tmp_path: Path) -> None:
    output = tmp_path / "never.json"
    arguments = ("--quick", "--server", "grpc://127.0.0.1:1", "--output", str(output), "--only", "server=sync,bare")
    process = started("run_benchmark", *arguments)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("run 1: sync at"):
            break
    started_servers = psutil.Process(process.pid).children()
    process.terminate()
    said, _ = process.communicate()

    assert process.returncode == 130
    assert "interrupted: nothing was written" in said
    assert "Traceback" not in said
    assert len(started_servers) >= 2  # and processes that read, as soon as there is something to read
    # One that was just being started is nobody's to wait for: it ends when it reads that its starter is gone.
    assert not psutil.wait_procs(started_servers, timeout=SOON)[1]
    assert not output.exists()


def test_a_server_is_measured_if_it_has_the_table() -> None:
    said: list[str] = []
    with serving({}) as without, serving({}, sources=(mock.SOURCE,)) as with_it:
        assert named_server(without.location, said.append) is None
        assert named_server(with_it.location, said.append) == with_it.location
    assert "has no table" in said[0] and "using the server" in said[1]


def test_a_server_that_does_not_start_is_an_error_with_its_reason() -> None:
    with (
        pytest.raises(TransportError, match="did not start"),
        spawned("fastflight_benchmark.table", "--server", "nonsense"),
    ):
        raise AssertionError("it must not come up")
