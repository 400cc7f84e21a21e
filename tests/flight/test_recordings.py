"""Recordings through a whole server: rows as live, ranges, damage, a full disk, a process that is killed."""

from __future__ import annotations

import errno
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.log import Store, StoreReader, compact
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.sources import Recordings, device_actions, device_sources, recording_actions, recording_source
from fastflight.sources import recorder as recorder_module
from fastflight.sources.metrics import recording_metrics
from fastflight.sources.numbering import NUMBERS_PER_SECOND
from fastflight.transport.chunk_buffer import Chunk
from tests.log.disks import FailingDisk
from tests.log.rows import log_batch

from .conftest import BoardServer, ticket

RECORDING = {"type": "recording", "name": "demo"}
SESSION = {"type": "device.session", "device": "demo", "flush_ms": 0}
MORE_THAN_A_TAP_KEEPS = 4 * 1024 * 1024
SOON = 60.0
TELEMETRY = {"ms": "int64", "temperature": "double"}


@contextmanager
def recording(folder: Path, url: str = "sim:?telemetry=50", **options: Any) -> Iterator[tuple[BoardServer, Recordings]]:
    """A server with one device that is recorded, as the command line puts it together."""
    with ExitStack() as parts:
        shards = Shards(1)
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory({"demo": url}, shards=shards))
        recordings = Recordings(folder, inventory, sync_ms=20, **options)
        parts.callback(recordings.close)
        parts.enter_context(shards)
        recordings.start("demo")
        catalog = Catalog()
        for source in (*device_sources(inventory), recording_source(recordings)):
            catalog.add(source)
        actions = [*device_actions(inventory), *recording_actions(recordings)]
        server = FlightServer(catalog, actions, shards=shards, location="grpc://127.0.0.1:0")
        parts.callback(server.close)
        board = BoardServer(f"grpc://127.0.0.1:{server.port}", inventory, folder)
        parts.callback(board.client.close)
        yield board, recordings


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    """A server that has recorded a few rows of a board, and records it no more."""
    with recording(tmp_path_factory.mktemp("recordings")) as (board, _):
        board.get(**SESSION, limit_rows=12)
        board.act("recording.stop", device="demo")
        yield board


def test_an_upload_is_no_part_of_a_recording_and_leaves_no_gap(tmp_path: Path) -> None:
    with recording(tmp_path) as (board, recordings):
        board.get(**SESSION, limit_rows=5)
        table = pa.table({"a": list(range(20_000))})
        assert board.put(table, {"type": "device.file", "device": "demo", "path": "/new.csv"}, chunk=4000).error is None
        end = board.inventory.device("demo").tap.next_seq + 5
        board.get(**SESSION, limit_rows=10)
        board.act("recording.stop", device="demo")
        got = board.get(**RECORDING)
        assert got.error is None and got.trailer is not None
        assert (got.trailer["gaps"], got.trailer["lost"], recordings.status("demo").lost) == (0, 0, 0)
        said = b"".join(got.table["data"].to_pylist())
        assert set(got.table["direction"].to_pylist()) == {"rx"}
        assert b"raw REPL" not in said and b"\x04" not in said
        assert got.table["seq"].to_pylist() == list(range(got.table.num_rows)) and got.table.num_rows >= end
        rows = board.get(**RECORDING, format="jsonl", schema=TELEMETRY)
        # The first one stands behind the prompt.
        assert rows.trailer is not None and rows.trailer["gaps"] == 0
        assert [each["seq"] for each in rows.trailer["rejected_rows"] if each["seq"] > 4] == []


def messages(board: BoardServer, **request: Any) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    reader = board.client.do_get(ticket(**request))
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        yield chunk.data.to_pylist(), json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}


def test_the_recording_has_the_rows_of_the_live_session(tmp_path: Path) -> None:
    with recording(tmp_path) as (board, _):
        live = board.table(**SESSION, limit_rows=8)
        lines = board.get(**SESSION, since_seq=0, format="jsonl", schema=TELEMETRY, limit_rows=3).table
        board.act("recording.stop", device="demo")
        first, last = live["seq"][0].as_py(), live["seq"][-1].as_py()
        again = board.get(**RECORDING, from_seq=first, to_seq=last)
        assert again.schema is not None and again.schema.metadata[b"fastflight.path"] == b"async"
        assert again.table.equals(live)
        assert again.trailer is not None
        assert {"rows": 8, "gaps": 0, "lost": 0, "next_seq": last + 1}.items() <= again.trailer.items()
        kept = board.get(**RECORDING, format="jsonl", schema=TELEMETRY, limit_rows=3)
        assert kept.table.equals(lines)
        assert kept.trailer is not None and kept.trailer["ended"] == "limit reached"


def test_ranges(told: BoardServer) -> None:
    whole = told.table(**RECORDING)
    numbers = whole["seq"].to_pylist()
    assert numbers == list(range(len(numbers)))
    assert told.table(**RECORDING, from_seq=3, to_seq=5).equals(whole.slice(3, 3))
    moment = whole["time"][4].as_py().isoformat()
    assert told.table(**RECORDING, from_time=moment).equals(whole.slice(4))
    assert told.table(**RECORDING, to_time=moment).equals(whole.slice(0, 4))
    assert told.table(**RECORDING, since_seconds=3600, limit_rows=2).equals(whole.slice(0, 2))
    assert told.table(**RECORDING, columns=["data"]).column_names == ["data"]
    assert told.table(**RECORDING, from_seq=10**6).num_rows == 0


def test_it_is_listed_with_its_rows(told: BoardServer) -> None:
    rows = told.table(**RECORDING).num_rows
    (found,) = told.client.list_flights(b"demo/recording")
    assert json.loads(found.descriptor.command) == {
        **RECORDING,
        "mode": "async",
        "format": "bytes",
        "batch_rows": 65536,
    }
    assert found.total_records == rows
    assert told.client.do_get(found.endpoints[0].ticket).read_all().num_rows == rows
    info = told.client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps({**RECORDING, "from_seq": 2})))
    assert info.total_records == rows - 2
    (listed,) = told.act("recordings")
    assert {"name": "demo", "state": "kept", "rows": rows, "lost": 0, "damage": []}.items() <= listed.items()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"name": "dmeo"}, "Did you mean 'demo'"),
        ({"from_seq": 5, "to_seq": 4}, "to_seq: the range ends before it begins"),
        ({"from_time": "2026-01-02T00:00:00Z", "to_time": "2026-01-01T00:00:00Z"}, "to_time: the range ends before"),
        (
            {"from_time": "2026-01-02T00:00:00Z", "since_seconds": 1},
            "since_seconds: it cannot be combined with from_time",
        ),
        ({"from_time": "2026-01-02T00:00:00"}, "from_time"),
        ({"from_time": "yesterday"}, "from_time"),
        ({"from_time": "2026"}, 'from_time: "2026" is not allowed. Not a time in ISO 8601'),
        ({"format": "csv"}, "csv needs a schema"),
        ({"schema": {"a": "int64"}}, "the columns of bytes are fixed"),
        ({"form": "csv"}, "Did you mean 'format'"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(told: BoardServer, keys: dict[str, Any], says: str) -> None:
    got = told.get(**{**RECORDING, **keys})
    assert got.error is not None and re.search(re.escape(says), str(got.error))


def test_recording_is_switched_on_and_off(told: BoardServer) -> None:
    (on,) = told.act("recording.start", device="demo")
    assert on["state"] == "recording"
    assert told.act("devices")[0]["recording"] == "recording"
    (same,) = told.act("recording.start", device="demo")
    assert same["state"] == "recording"
    (off,) = told.act("recording.stop", device="demo")
    assert off["state"] == "kept"
    with pytest.raises(pa.ArrowInvalid, match="it is not recorded"):
        told.act("recording.stop", device="demo")


def test_a_server_goes_on_at_the_next_million(tmp_path: Path) -> None:
    for _ in range(2):
        with recording(tmp_path) as (board, _recordings):
            board.get(**SESSION, limit_rows=3)
    with recording(tmp_path, "sim:?telemetry=0") as (board, _recordings):
        seen = [(rows, note) for rows, note in messages(board, **RECORDING) if rows or note]
        numbers = [row["seq"] for rows, _ in seen for row in rows]
        again = next(number for number in numbers if number >= NUMBERS_PER_SECOND)
        assert numbers[0] == 0 and again % NUMBERS_PER_SECOND == 0
        notes = [note for _, note in seen if note]
        assert (
            notes[0]["gap"].items() >= {"why": "server down", "first": again, "last": again - 1, "rows": None}.items()
        )
        assert notes[0]["gap"]["from"] < notes[0]["gap"]["to"]
        # This server's board has printed nothing yet, and the server was down before.
        assert notes[-2]["gap"]["why"] == "server down" and notes[-2]["gap"]["from"] > notes[0]["gap"]["to"]
        assert (notes[-1]["gaps"], notes[-1]["lost"]) == (2, 0)


def test_a_full_disk_does_not_end_what_is_live_and_is_told_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "LAST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "FIRST_RETRY_SECONDS", 0.01)
    full = [0]
    disk = FailingDisk(tmp_path, lambda call, name: full[0] if call == "write" else 0)
    with recording(tmp_path, disk=disk) as (board, _):
        live = messages(board, **SESSION)
        said: list[str] = []
        number = -1
        for rows, note in live:
            for row in rows:
                assert row["seq"] > number >= -1
                number = row["seq"]
            if "recording" in note:
                said.append(note["recording"])
                (listed,) = board.act("recordings")
                assert listed["failures"] >= 1 and board.act("devices")[0]["recording"] is not None
                full[0] = 0
            elif rows and not said:
                full[0] = errno.ENOSPC
            if len(said) == 2 and rows:
                break
        live.close()
        assert said[0].startswith("recording failed: ") and said[1] == "recording"
        board.act("recording.stop", device="demo")
        assert board.table(**RECORDING, to_seq=number)["seq"].to_pylist() == list(range(number + 1))


def test_damage_is_told_with_its_place_and_never_served(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for first in (0, 10, 20):
            numbers = range(first, first + 10)
            chunks = [Chunk(number, number * 1000, "rx", b"reading %d\n" % number) for number in numbers]
            log.append(log_batch(chunks, {})).result()
    path = tmp_path / "recordings.db"
    data = bytearray(path.read_bytes())
    data[data.index(b"reading 15")] ^= 1
    path.write_bytes(data)
    with recording(tmp_path, "sim:?telemetry=0") as (board, _):
        for format in ("bytes", "lines"):
            seen = list(messages(board, **RECORDING, format=format, to_seq=29))
            assert [row["seq"] for rows, _ in seen for row in rows] == [*range(10), *range(20, 30)]
            (gap,) = [note["gap"] for _, note in seen if "gap" in note]
            assert (gap["first"], gap["last"], gap["why"]) == (10, 19, "damaged")
            assert gap["detail"] == "recordings.db, body 2"
            assert seen[-1][1]["damage"] == board.act("recordings")[0]["damage"] == [gap["detail"]]
            assert (seen[-1][1]["gaps"], seen[-1][1]["lost"]) == (1, 10)


def test_what_was_lost_is_one_count_wherever_it_is_shown_and_survives_a_restart(tmp_path: Path) -> None:
    lost: list[int] = []
    for _ in range(2):
        with recording(tmp_path, "sim:?telemetry=0") as (board, recordings):
            device = board.inventory.device("demo")

            async def flood(
                device: Device = device,
            ) -> None:  # on the recorder's loop, so that it takes nothing meanwhile
                for data in (*[b"small"] * 10, bytes(MORE_THAN_A_TAP_KEEPS), bytes(MORE_THAN_A_TAP_KEEPS)):
                    device.tap.feed("rx", data)

            device.shard.submit(flood()).result(SOON)
            board.act("recording.stop", device="demo")
            (listed,) = board.act("recordings")
            seen = [note for _, note in messages(board, **RECORDING) if note]
            gaps = [note["gap"] for note in seen if "gap" in note]
            metrics = {each.name: each.samples[0].value for each in recording_metrics(recordings)}
            lost.append(sum(gap["last"] - gap["first"] + 1 for gap in gaps))
            assert listed["lost"] == seen[-1]["lost"] == metrics["fastflight_recording_lost"] == lost[-1]
        assert StoreReader(tmp_path).log("demo").statistics().lost == lost[-1]
    assert 0 < lost[0] < lost[1]


def test_a_line_without_pace_is_recorded_without_a_gap(tmp_path: Path) -> None:
    total = 4 * MORE_THAN_A_TAP_KEEPS
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def flood() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(bytes(range(256)) * (total // 256))
                peer.recv(1)

        sending = threading.Thread(target=flood)
        sending.start()
        with recording(tmp_path, f"socket://127.0.0.1:{listener.getsockname()[1]}") as (board, recordings):
            tap = board.inventory.device("demo").tap
            reader = tap.reader(seq=0)
            while tap.byte_counts["rx"] < total:
                reader.take(SOON)
            board.act("recording.stop", device="demo")
            assert (recordings.status("demo").lost, recordings.status("demo").next_seq) == (0, tap.next_seq)
            table = board.table(**RECORDING)
            assert sum(len(data) for data in table["data"].to_pylist()) == total
        sending.join()


def test_parts_have_together_what_the_whole_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.sources.recording.PART_BYTES", 4096)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for first in range(0, 300, 10):
            gap = 5 if first >= 150 else 0
            chunks = [Chunk(n, n * 1000, "rx", bytes(100)) for n in range(first, first + 10)]
            log.append(log_batch(chunks, {}), first=first + gap).result()
            compact(store, file_bytes=0, least=1)
    with recording(tmp_path, "sim:?telemetry=0") as (board, _):
        board.act("recording.stop", device="demo")  # else the board's first words come between two looks
        for keys in ({}, {"from_seq": 12, "to_seq": 280}):
            request = {**RECORDING, **keys}
            info = board.client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(request)))
            assert len(info.endpoints) > 3
            parts = [board.client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
            whole = board.client.do_get(ticket(**request)).read_all()
            assert pa.concat_tables(parts).equals(whole) and whole.num_rows == info.total_records
            gaps = [
                (note["gap"]["first"], note["gap"]["last"], note["gap"]["why"])
                for endpoint in info.endpoints
                for _, note in messages(board, **json.loads(endpoint.ticket.ticket))
                if "gap" in note
            ]
            assert gaps == [(150, 154, "not read in time")]
