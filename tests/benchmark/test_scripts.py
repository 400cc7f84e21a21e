"""The scripts as they are run: from their folder, by name, in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import fastflight_benchmark
from fastflight.errors import TransportError
from fastflight_benchmark import plot_benchmark_results, run_benchmark
from fastflight_benchmark.spawned import spawned

SOON = 30.0
FOLDER = Path(fastflight_benchmark.__file__).parent
SCRIPTS = ["start_flight_server", "table", "run_benchmark", "plot_benchmark_results"]


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, f"{script}.py", *arguments],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
    )


def unwrapped(text: str) -> str:
    """`text` without what a narrow terminal adds: typer takes its width from whoever imports it first."""
    return "".join(text.replace("│", "").split())


def test_each_script_explains_itself() -> None:
    running = {script: started(script, "--help") for script in SCRIPTS}
    said = {script: process.communicate()[0] for script, process in running.items()}

    assert [process.returncode for process in running.values()] == [0] * len(SCRIPTS)
    assert "--device" in said["start_flight_server"]
    assert "pyarrow alone" in said["table"]
    for option in ("--suite", "--quick", "--runs", "--output", "--server", "--rows", "--clients", "--delays"):
        assert option in said["run_benchmark"]
    assert "CSV" in said["plot_benchmark_results"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rows", "40,many"], "'many' is not a whole number"),
        (["--rows", ""], "'' is not a whole number"),
        (["--rows", "0"], "0 is not between 1 and 1000000"),
        (["--clients", "1,-1"], "-1 is not between 1 and 1000"),
        (["--delays", "1000001"], "1000001 is not between 0 and 1000000"),
        (["--total-rows", "0"], "Invalid value for '--total-rows'"),
        (["--suite", "memory", "--rows", "40", "--delays", "1"], "only the suite flight has it, not memory"),
    ],
)
def test_sizes_that_cannot_be_measured_are_refused(arguments: list[str], says: str) -> None:
    result = CliRunner(env={"NO_COLOR": "1"}).invoke(run_benchmark.app, arguments)
    assert result.exit_code == 2
    assert unwrapped(says) in unwrapped(result.output)


def test_a_size_that_is_given_twice_is_measured_once() -> None:
    assert run_benchmark.integers("--rows", "40, 1000,40", 1, 5000) == (40, 1000)
    assert run_benchmark.integers("--rows", None, 1, 5000) == ()


def test_wrong_arguments_are_said_in_words(tmp_path: Path) -> None:
    no_result = tmp_path / "no_result.csv"
    no_result.write_text("a,b\n1,2\n")
    no_result.with_suffix(".json").write_text("{}")

    for app, argument, says in (
        (run_benchmark.app, "--suite=flihgt", "is not one of flight, requests, memory, transfer, boards, bridge"),
        (run_benchmark.app, f"--output={tmp_path}", "cannot be written: Is a directory"),
        (run_benchmark.app, f"--output={no_result}/file.csv", "cannot be written"),
        (plot_benchmark_results.app, str(tmp_path / "missing.csv"), "No such file"),
        (plot_benchmark_results.app, str(no_result), "is not a result"),
    ):
        result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, [argument])
        assert result.exit_code == 2
        assert unwrapped(says) in unwrapped(result.output)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_a_run_that_is_stopped_ends_what_it_started(tmp_path: Path) -> None:
    output = tmp_path / "never.csv"
    arguments = ("--quick", "--server", "grpc://127.0.0.1:1", "--output", str(output), "--only", "server=sync,bare")
    running = {stop: started("run_benchmark", *arguments) for stop in (signal.SIGINT, signal.SIGTERM)}
    for stop, process in running.items():
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("run 1: sync at"):
                break
        started_servers = psutil.Process(process.pid).children()
        process.send_signal(stop)
        said, _ = process.communicate()

        assert process.returncode == 130
        assert "interrupted: nothing was written" in said
        assert "Traceback" not in said
        assert len(started_servers) >= 2  # and processes that read, as soon as there is something to read
        # One that was just being started is nobody's to wait for: it ends when it reads that its starter is gone.
        assert not psutil.wait_procs(started_servers, timeout=SOON)[1]
    assert not output.exists()


def test_a_server_that_does_not_start_is_an_error_with_its_reason() -> None:
    with (
        pytest.raises(TransportError, match="did not start"),
        spawned("fastflight_benchmark.table", "--server", "nonsense"),
    ):
        raise AssertionError("it must not come up")
