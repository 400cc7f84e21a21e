"""`fastflight record`, `replay` and `recordings`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight import user_folders
from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.app.overlay import read_config
from fastflight.app.running import RunningServer
from fastflight.cli.replay import GAPS_KEY, GapReporter
from fastflight.client import FastFlightClient, Gap, RowStream
from fastflight.client.stream import MAX_KEPT_GAPS
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.servers import config, ready_server

from .conftest import Run
from .test_transcripts import record_weather


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("recordings")
    record_weather(folder)
    with ready_server(recordings=RecordingSettings(folder=folder, sync_ms=20)) as location:
        yield location


def test_what_is_missing_stands_where_it_is_missing(location: str) -> None:
    """On a terminal both go to one place."""
    command = [*FASTFLIGHT, "replay", "weather", "--server", location, "--raw"]
    done = run_command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert b"4,24.5\nmissing: not read in time, 2 rows (5 to 6)\n7,27.5\n" in done.stdout


def test_gaps_are_told_though_older_ones_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """A stream keeps the newest alone."""

    class Rows:
        gaps: ClassVar[list[Gap]] = []

    show = GapReporter(cast(RowStream, Rows), lambda batch: None)
    for place in range(2 * MAX_KEPT_GAPS):
        Rows.gaps = [*Rows.gaps, Gap(10 * place, 10 * place + 1)][-MAX_KEPT_GAPS:]
        show(pa.record_batch([pa.array([10 * place + 2], pa.uint64())], ["seq"]))
    Rows.gaps = [*Rows.gaps[1:], Gap(10**6, 10**6)]
    show.finish()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 * MAX_KEPT_GAPS + 1
    assert lines[-1] == "missing: not read in time, 1 row (1000000 to 1000000)"


def test_the_gaps_are_in_the_parquet_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    assert run("replay", "weather", "-o", str(file)).exit_code == 0
    assert duckdb.sql(f"select seq from '{file}'").fetchall() == [(n,) for n in (0, 1, 2, 3, 4, 7, 8, 9)]
    (gap,) = json.loads(pq.read_metadata(file).metadata[GAPS_KEY.encode()])
    assert gap.items() >= {"first": 5, "last": 6, "why": "not read in time", "rows": 2}.items()


def test_rows_that_are_still_being_recorded_are_exported(run: Run, tmp_path: Path) -> None:
    """Of a segment that is not closed: what the server has stored a moment ago."""
    settings = config(
        {"demo": "sim:?telemetry=20"},
        record=["demo"],
        recordings=RecordingSettings(folder=tmp_path / "recordings"),
    )
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        with client.session("demo", format="bytes", limit_rows=5) as rows:
            last = max(max(batch.column("seq").to_pylist()) for batch in rows)
        while client.recordings()[0].next_seq <= last:
            pass  # until the rows are on the disk, a second later
        file = tmp_path / "demo.parquet"
        result = run("replay", "demo", "--format", "bytes", "-o", str(file), "--server", running.location)
        assert result.exit_code == 0, result.output
        assert client.recordings()[0].state == "recording"
    assert last in [seq for (seq,) in duckdb.sql(f"select seq from '{file}'").fetchall()]


def test_a_device_of_the_server_is_switched_on_and_off(run: Run) -> None:
    said = run("record", "demo").stdout
    assert re.fullmatch(r"demo: recording; [\d,]+ rows? so far in /.*\. To show them: fastflight replay demo\n", said)
    run("tail", "demo", "-n", "5")
    said = run("record", "demo", "--stop").stdout
    assert re.fullmatch(r"demo: recording stopped; [1-9][\d,]* rows? kept\. To show .* replay demo\n", said)
    assert run("record", "demo", "--stop").exit_code == 1
    assert run("replay", "demo", "-n", "1").exit_code == 0


def test_a_server_that_keeps_nothing_says_what_to_do(run: Run) -> None:
    settings = config()
    with open_server(settings) as running:
        for command in (("record", "demo"), ("replay", "demo"), ("devices", "add", "new=sim:", "--record")):
            result = run(*command, "--server", running.location)
            assert (result.exit_code, "--recordings DIR" in result.stderr) == (1, True)
        assert json.loads(run("recordings", "--json", "--server", running.location).stdout) == []


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for a user's data: empty."""
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def default_server() -> RunningServer:
    return open_server(read_config("grpc://127.0.0.1:0", ["demo=sim:?telemetry=50"], None))


def test_a_server_with_defaults_records_when_it_is_asked_to(run: Run, data: Path) -> None:
    folder = user_folders.for_recordings()
    with default_server() as running:
        server = ["--server", running.location]
        listed = run("recordings", *server)
        assert (listed.exit_code, "`fastflight record DEVICE` begins one" in listed.stderr) == (0, True)
        assert "fastflight record demo" in run("replay", "demo", *server).stderr
        assert (run("replay", "demo", *server).exit_code, run("record", "demo", "--stop", *server).exit_code) == (1, 1)
        assert run("record", "dmeo", *server).exit_code == 1 and not list(data.iterdir())
        run("tail", "demo", "-n", "2", *server)
        started = run("record", "demo", *server)
        assert started.stdout.startswith(f"demo: recording; 0 rows so far in {folder}. To show"), started.output
        if os.name == "posix":
            assert folder.stat().st_mode & 0o777 == 0o700
        run("tail", "demo", "-n", "5", *server)
        assert run("record", "demo", "--stop", *server).exit_code == 0
        (kept_first,) = json.loads(run("recordings", "--json", *server).stdout)
        assert kept_first["rows"] >= 5 and kept_first["lost"] == 0
    with default_server() as running:  # another one: it serves what is there, and goes on with it
        server = ["--server", running.location]
        (listed,) = json.loads(run("recordings", "--json", *server).stdout)
        assert listed == kept_first
        assert run("replay", "demo", "-n", "1", *server).exit_code == 0
        with default_server() as other:
            assert run("record", "demo", "--server", other.location).exit_code == 0
            run("tail", "demo", "-n", "3", "--server", other.location)
            refused = run("record", "demo", *server)
            said = " ".join(refused.stderr.split())
            assert refused.exit_code != 0 and "writes the default folder of recordings" in said
            assert "--recordings DIR" in said
        refused = run("record", "demo", *server)
        assert refused.exit_code == 1 and "another server has recorded it since this one started" in refused.stderr
    with default_server() as running:
        assert run("record", "demo", "--server", running.location).exit_code == 0
