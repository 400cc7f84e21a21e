"""`fastflight record`, `replay` and `recordings`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight import user_folders
from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.app.local_cluster import nats_servers
from fastflight.app.overlay import read_config
from fastflight.app.running import RunningServer
from fastflight.cli.replay import GAPS_KEY, GapReporter
from fastflight.client import FastFlightClient, Gap, RowStream
from fastflight.client.stream import MAX_KEPT_GAPS
from fastflight.errors import TransportError
from fastflight.log import Store
from fastflight.sources.session_lines import BEGAN
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.servers import ServerProcess, config
from tests.support.waiting import until

from .conftest import Run

# The numbers of the rows: two are missing.
LOTS = ((0, 4), (7, 9))
# 2026-11-20 08:00 UTC.
BEGIN_NS = 1_795_161_600 * 10**9
SECOND_NS = 10**9
READINGS = ["--format", "csv", "--schema", "n=int64,celsius=double"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten lines of a device named weather, of which two are missing; the server's folder, too."""
    folder = tmp_path_factory.mktemp("recordings")
    with Store(folder, sync_ms=0) as store:
        log = store.open("weather")
        for first, last in LOTS:
            log.append(lot(first, last), first=first).result()
    return folder


def lot(first: int, last: int) -> pa.RecordBatch:
    """A line each second."""
    lines = [Chunk(n, BEGIN_NS + n * SECOND_NS, "rx", b"%d,2%d.5\n" % (n, n)) for n in range(first, last + 1)]
    return log_batch(lines, {0: BEGAN})


@pytest.fixture(scope="module")
def location(folder: Path) -> Iterator[str]:
    settings = config(recordings=RecordingSettings(folder=folder, sync_ms=20))
    with open_server(settings) as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")  # opens the board's line, which stays open: no leak of the test that comes first
        yield running.location


@pytest.fixture(scope="module")
def in_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a cluster, which hands over the same rows: an earlier process has left them in its buffer."""
    recordings = tmp_path_factory.mktemp("recordings")
    with Store(recordings / "alpha", sync_ms=0) as store:
        log = store.open("weather")
        for first, last in LOTS:
            log.append(lot(first, last), first=first).result()
    with nats_servers(tmp_path_factory.mktemp("nats")) as nats:
        options = ("--cluster", nats.url, "--cluster-name", "alpha", "--recordings", str(recordings))
        # A process of its own, whose log is not on the standard output of the commands.
        with closing(ServerProcess("--device", "demo=sim:", *options)) as server:
            with FastFlightClient(server.location) as client:
                until(lambda: is_whole(client))
            yield server.location


def is_whole(client: FastFlightClient) -> bool:
    """Whether a server has all rows. It connects to NATS after it has begun to listen."""
    with contextlib.suppress(TransportError):
        return [each.rows for each in client.recordings()] == [8]
    return False


@pytest.fixture(params=["server", "cluster"])
def here(request: pytest.FixtureRequest, in_cluster: str) -> list[str]:
    """Asked of the server or of one of a cluster."""
    return ["--server", in_cluster] if request.param == "cluster" else []


def test_recordings_are_listed(run: Run) -> None:
    shown = run("recordings").stdout.splitlines()
    assert shown[0].split() == ["name", "rows", "size", "from", "to", "next", "lost", "gaps", "state"]
    assert re.fullmatch(r"weather +8 +\d+ B  2026-11-20 \d\d:\d\d  2026-11-20 \d\d:\d\d +10 +2 +1  kept", shown[1])
    (told,) = json.loads(run("recordings", "--json").stdout)
    assert {"name": "weather", "rows": 8, "next_seq": 10, "state": "kept"}.items() <= told.items()


def test_lines_with_their_times_and_what_is_missing(run: Run, here: list[str]) -> None:
    result = run("replay", "weather", *here)
    lines = result.stdout.splitlines()
    assert [line.split()[-1] for line in lines] == [f"{n},2{n}.5" for n in (0, 1, 2, 3, 4, 7, 8, 9)]
    assert re.match(r"2026-11-20 \d\d:00:00\.000  ", lines[0])
    said = result.stderr.splitlines()
    assert said[0] == "missing: not read in time, 2 rows (5 to 6)"
    assert re.fullmatch(r"end of recording: 8 rows in \d+\.\d s, 1 gap with 2 rows missing", said[1])


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


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        # The first line, and the one after the gap, are not known to be whole.
        ([], [1, 2, 3, 4, 8, 9]),
        (["--from", "3", "--to", "8"], [3, 4, 8]),
        (["--from", "2026-11-20T08:00:08Z"], [8, 9]),
        (["--to", "2026-11-20T08:00:02+00:00"], [1]),
        (["-n", "2"], [1, 2]),
        (["--since", "0"], []),
        (["--from", "8:00:00"], []),
        (["--speed", "10000"], [1, 2, 3, 4, 8, 9]),
    ],
)
def test_a_range(run: Run, options: list[str], numbers: list[int]) -> None:
    rows = [json.loads(line) for line in run("replay", "weather", *READINGS, "--json", *options).stdout.splitlines()]
    assert [row["n"] for row in rows] == numbers


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".jsonl"])
def test_the_rows_in_a_file(run: Run, ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"out{ending}"
    result = run("replay", "weather", *READINGS, "--columns", "seq,n,celsius", "-o", str(file))
    assert re.fullmatch(rf"{file}: [\d,]+ B, 6 rows, 1 gap with 2 rows missing\n", result.stdout), result.output
    if ending == ".arrow":
        table = pa.ipc.open_stream(file.read_bytes()).read_all()
    elif ending == ".jsonl":
        table = pa.Table.from_pylist([json.loads(line) for line in file.read_text().splitlines()])
    else:
        table = duckdb.sql(f"from '{file}'").to_arrow_table()
    assert table.column_names == ["seq", "n", "celsius"]
    assert table.column("n").to_pylist() == [1, 2, 3, 4, 8, 9]
    if ending == ".parquet":
        (gap,) = json.loads(pq.read_metadata(file).metadata[GAPS_KEY.encode()])
        assert gap.items() >= {"first": 5, "last": 6, "why": "not read in time", "rows": 2}.items()


def test_sql_has_the_rows_of_a_cluster(run: Run, in_cluster: str) -> None:
    query = "select seq, direction, decode(data) as line from weather.recording where seq > 1 order by seq"
    rows = [json.loads(line) for line in run("sql", query, "--json", "--server", in_cluster).stdout.splitlines()]
    assert rows == [{"seq": n, "direction": "rx", "line": f"{n},2{n}.5\n"} for n in (2, 3, 4, 7, 8, 9)]


def test_a_part_in_a_folder(run: Run, tmp_path: Path) -> None:
    told = json.loads(run("replay", "weather", "--from", "7", "--to", "8", "-o", str(tmp_path), "--json").stdout)
    assert {"output": str(tmp_path / "weather.parquet"), "rows": 2, "gaps": 0}.items() <= told.items()
    assert pq.read_table(tmp_path / "weather.parquet").column("text").to_pylist() == ["7,27.5", "8,28.5"]


def test_the_rows_on_standard_output(run: Run) -> None:
    asked = ["replay", "weather", *READINGS, "--columns", "n", "--from", "8", "-o", "-"]
    assert run(*asked).stdout == "n\n8\n9\n"
    assert [json.loads(line) for line in run(*asked, "--json").stdout.splitlines()] == [{"n": 8}, {"n": 9}]


def test_a_failed_export_leaves_the_old_file(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("old")
    for options in (["--format", "bytes", "-o", str(old)], ["-o", str(tmp_path / "nowhere" / "x.csv")]):
        assert run("replay", "weather", *options).exit_code in (1, 2)
    assert run("replay", "wether", "-o", str(old)).exit_code == 1
    assert (old.read_text(), list(tmp_path.iterdir())) == ("old", [old])


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


def test_columns_as_csv(run: Run) -> None:
    shown = run("replay", "weather", *READINGS, "--csv", "--columns", "n,celsius", "-n", "1").stdout
    assert shown.splitlines() == ["n,celsius", "1,21.5"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["replay", "wether"], 1, "Did you mean 'weather'"),
        (["replay", "weather", "--from", "yesterday"], 2, "neither a time"),
        (["replay", "weather", "--from", "9" * 5000], 2, "neither a time"),
        (["replay", "weather", "--from", "0001-01-01"], 2, "00:00:00: this local time cannot be converted"),
        (["replay", "weather", "--json", "--raw"], 2, "one of --raw"),
        (["replay", "weather", "--raw", "-o", "x.csv"], 2, "-o FILE saves rows"),
        (["replay", "weather", "-o", "x.txt"], 1, "its ending does not say how to write a table"),
        (["replay", "weather", "-o", "nowhere/"], 2, "'nowhere' is not a folder"),
        (["replay", "weather", *READINGS, "--columns", "n", "--speed", "1"], 2, "--speed needs the column time"),
        (["record", "dmeo"], 1, "Did you mean 'demo'"),
    ],
)
def test_what_is_refused(
    run: Run, arguments: list[str], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.exit_code, says in re.sub(r"[\s│]+", " ", result.stderr)) == (code, True)


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
        for command in ("record", "replay"):
            result = run(command, "demo", "--server", running.location)
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
