"""The main job, as README shows it: a board's files as tables and tables as its files, with plain `pyarrow.flight`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.flight as flight
import pytest

from fastflight.simulator import samples
from fastflight.sources import board_listings
from tests.support.waiting import until

from .conftest import SOON, BoardServer, Serve, board_server, command, sha256, simulated, ticket

FILE = {"type": "device.file", "device": "demo"}
LOG = {"path": "/log.bin", "format": "packed", "record": samples.RECORD.format}
LOG_COLUMNS = ["ms", "temperature", "light", "flags"]

TABLE = pa.table(
    {
        "time": pa.array([0, 1_500_000, None], pa.timestamp("us", tz="UTC")),
        "name": ["plain", 'quote" and, comma', "line\nfeed, ünïcode €"],
        "count": pa.array([1, None, -(2**40)], pa.int64()),
        "ratio": pa.array([0.1, 1e-300, None], pa.float64()),
        "ok": pa.array([True, None, False], pa.bool_()),
    }
)


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("mode", ["async"])
def test_readings_into_pandas(board: BoardServer, mode: str) -> None:
    reader = board.client.do_get(ticket(type="device.file", device="demo", path="/readings.csv", mode=mode))
    frame = reader.read_all().to_pandas()
    expected = pd.read_csv(io.BytesIO(samples.readings()), parse_dates=["time"])
    assert frame.shape == (10_000, 5)
    assert str(frame.dtypes["time"]) == "datetime64[us, UTC]"
    frame["time"] = frame["time"].astype(expected.dtypes["time"])
    pd.testing.assert_frame_equal(frame, expected)
    assert frame["temperature"].isna().sum() > 0  # the sensor did not always answer
    assert frame["pressure"].notna().all()
    assert frame["time"].diff().max() > pd.Timedelta(minutes=5)  # the logger was off now and then


@pytest.mark.parametrize("path", ["/there and back.csv", "/new.jsonl", "/new.arrow"])
def test_a_table_there_and_back(board: BoardServer, mode: str, path: str) -> None:
    request = {"type": "device.file", "device": "demo", "path": path, "mode": mode}
    put = board.put(TABLE, request, chunk=1)
    assert put.error is None
    content = (board.folder / path[1:]).read_bytes()
    assert put.last == {
        "rows": 3, "bytes": len(content), "sha256": sha256(content), "verified": "sha256", "done": True
    }  # fmt: skip
    assert [ack["rows"] for ack in put.acks] == [1, 2, 3, 3]
    assert [ack["bytes"] for ack in put.acks] == sorted(ack["bytes"] for ack in put.acks)
    assert board.table(**request).equals(TABLE)


def test_raw_bytes_there_and_back(board: BoardServer, mode: str) -> None:
    request = {"type": "device.file", "device": "demo", "path": "/image.dat", "format": "raw", "mode": mode}
    data = bytes(range(256)) * 40
    table = board.table(type="device.file", device="demo", path="/log.bin", format="raw").schema.empty_table()
    table = pa.Table.from_pydict({"offset": [0, 5000], "data": [data[:5000], data[5000:]]}, schema=table.schema)
    assert board.put(table, request).error is None
    assert (board.folder / "image.dat").read_bytes() == data
    assert b"".join(board.table(**request)["data"].to_pylist()) == data


def test_a_path_descriptor_writes_with_defaults(board: BoardServer) -> None:
    writer, reader = board.client.do_put(flight.FlightDescriptor.for_path("demo", "notes/../new.csv"), TABLE.schema)
    with writer:
        writer.write_table(TABLE)
        writer.done_writing()
        while reader.read() is not None:
            pass
    assert (board.folder / "new.csv").exists()
    assert board.table(type="device.file", device="demo", path="new.csv").num_rows == 3


def test_what_the_stream_says_of_itself(board: BoardServer, mode: str) -> None:
    request = {"type": "device.file", "device": "demo", "path": "/readings.csv", "mode": mode}
    got = board.get(**request)
    assert got.schema is not None and got.trailer is not None
    assert got.schema.metadata[b"fastflight.path"].decode() == mode
    said = json.loads(got.schema.metadata[b"fastflight.request"])
    assert {key: said[key] for key in request} == request
    content = (board.folder / "readings.csv").read_bytes()
    assert got.trailer["rows"] == 10_000
    assert (got.trailer["bytes"], got.trailer["sha256"]) == (len(content), sha256(content))
    assert (got.trailer["rejected"], got.trailer["rejected_rows"]) == (0, [])
    assert got.trailer["duration_seconds"] > 0
    # The metadata is a request: it can be asked again.
    again = board.client.do_get(flight.Ticket(got.schema.metadata[b"fastflight.request"]))
    assert again.read_all().num_rows == 10_000


@pytest.mark.parametrize(
    "keys",
    [{"path": "/readings.csv"}, {"path": "/events.jsonl"}, {**LOG, "columns": LOG_COLUMNS}, {"path": "/main.py"}],
    ids=["csv", "jsonl", "packed", "raw"],
)
def test_both_paths_give_the_same_rows(board: BoardServer, keys: dict[str, object]) -> None:
    sync = board.get(type="device.file", device="demo", mode="sync", **keys)
    asynchronous = board.get(type="device.file", device="demo", mode="async", **keys)
    assert sync.error is None and asynchronous.error is None
    assert sync.table.num_rows > 0
    assert sync.table.combine_chunks().equals(asynchronous.table.combine_chunks())
    assert sync.trailer is not None and asynchronous.trailer is not None
    assert sync.trailer["sha256"] == asynchronous.trailer["sha256"]


def test_a_listing(board: BoardServer, mode: str) -> None:
    board.act("file.mkdir", device="demo", path="/data")
    (board.folder / "data" / "a.csv").write_bytes(b"n\n1\n")
    table = board.table(type="device.listing", device="demo", mode=mode)
    assert table.schema.names == ["path", "kind", "size", "modified"]
    size = {row["path"]: (row["kind"], row["size"]) for row in table.to_pylist()}
    assert size["/data"] == ("folder", 0)
    assert size["/readings.csv"] == ("file", len(samples.readings()))
    assert "/data/a.csv" not in size
    deep = board.table(type="device.listing", device="demo", path="/data", recursive=True, mode=mode)
    assert deep["path"].to_pylist() == ["/data/a.csv"]
    modified = deep["modified"][0].as_py().timestamp()
    assert abs(modified - (board.folder / "data" / "a.csv").stat().st_mtime) < 2


def test_lines_of_code_as_rows(board: BoardServer, mode: str) -> None:
    code = "for i in range(3):\n print('line', i)\nimport sys\nsys.stdout.write('no line end €')"
    table = board.table(type="device.exec", device="demo", code=code, mode=mode)
    assert table["line"].to_pylist() == [0, 1, 2, 3]
    assert table["text"].to_pylist() == ["line 0", "line 1", "line 2", "no line end €"]
    assert table["time"].to_pylist() == sorted(table["time"].to_pylist())


def test_flights_are_listed_by_a_glob(board: BoardServer) -> None:
    def paths(criteria: bytes) -> list[list[bytes]]:
        return sorted(info.descriptor.path for info in board.client.list_flights(criteria) if info.descriptor.path)

    assert paths(b"demo/*.csv") == [[b"demo", b"/readings.csv"]]
    assert paths(b"demo/*") == paths(b"") == [
        [b"demo", b"/events.jsonl"], [b"demo", b"/log.bin"], [b"demo", b"/main.py"], [b"demo", b"/readings.csv"]
    ]  # fmt: skip
    assert paths(b"other/*") == []
    (info,) = board.client.list_flights(b"demo/*.csv")
    assert info.total_bytes == len(samples.readings())
    assert board.client.do_get(info.endpoints[0].ticket).read_all().num_rows == 10_000
    (asked,) = board.client.list_flights(b'{"type": "device.file", "device": "demo", "path": "/log.bin"}')
    assert asked.total_bytes == len(samples.log())


@pytest.fixture
def two_boards(tmp_path: Path) -> Iterator[BoardServer]:
    """A server with the simulated boards `a` and `b`."""
    devices = {}
    for name in ("a", "b"):
        samples.write_samples(str(tmp_path / name / "board"))
        devices[name] = simulated(tmp_path / name)
    with board_server(devices, tmp_path) as boards:
        yield boards


def test_devices_are_listed_side_by_side(two_boards: BoardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy one does not keep the others waiting."""
    monkeypatch.setattr(board_listings, "LEASE_SECONDS", SOON)
    busy, free = (two_boards.inventory.device(name) for name in ("a", "b"))
    with ThreadPoolExecutor() as pool, busy.lease("a test"):
        listing = pool.submit(lambda: [info.descriptor.path for info in two_boards.client.list_flights(b"[ab]/*.csv")])
        until(lambda: free.turns)
    assert sorted(listing.result(SOON)) == [[b"a", b"/readings.csv"], [b"b", b"/readings.csv"]]


def test_a_busy_device_is_listed_from_what_is_known(two_boards: BoardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_listings, "LEASE_SECONDS", 0.05)

    def listed(criteria: bytes) -> dict[bytes, dict[str, str]]:
        infos = two_boards.client.list_flights(criteria)
        return {info.descriptor.path[0]: json.loads(info.app_metadata or b"{}") for info in infos}

    with two_boards.inventory.device("a").lease("a test"):
        assert listed(b"[ab]/*.csv") == {b"b": {}}, "nothing is known of the busy one yet"
    assert listed(b"[ab]/*.csv") == {b"a": {}, b"b": {}}
    with two_boards.inventory.device("a").lease("a test"):
        of_a = listed(b"[ab]/*.csv")[b"a"]
        assert of_a["busy"].startswith("in use by a test")
        (info,) = two_boards.client.list_flights(b"a/")
        said = json.loads(info.app_metadata)
        assert said["busy"] == "a test" and said["unlisted"].startswith("in use by a test")
        assert said["listed_seconds_ago"] == of_a["listed_seconds_ago"]


def test_a_board_whose_code_warns_without_end_goes_on(board: BoardServer) -> None:
    """Its process writes the warnings to a pipe that nobody reads."""
    code = "\n".join(f"x{number} = {number} is 1" for number in range(2000))
    for _ in range(3):
        board.exec(code)
    assert board.exec("print(1)") == "1\n"


def test_info_and_schema_before_reading(board: BoardServer) -> None:
    descriptor = flight.FlightDescriptor.for_path("demo", "/readings.csv")
    info = board.client.get_flight_info(descriptor)
    assert info.descriptor == descriptor
    assert (info.total_bytes, info.total_records) == (len(samples.readings()), -1)
    table = board.client.do_get(info.endpoints[0].ticket).read_all()
    assert info.schema == table.schema.remove_metadata()
    assert board.client.get_schema(descriptor).schema == info.schema
    packed = command(type="device.file", device="demo", columns=LOG_COLUMNS, **LOG)
    assert board.client.get_schema(packed).schema.names == LOG_COLUMNS
    listing = command(type="device.listing", device="demo")
    assert board.client.get_schema(listing).schema.names == ["path", "kind", "size", "modified"]


def test_actions(board: BoardServer) -> None:
    read = board.act("stats")[0]["sources"].get("device.file", {"rows": 0})["rows"]
    described = {action.type: json.loads(action.description.partition("\n")[2] or "{}")
                 for action in board.client.list_actions()}  # fmt: skip
    assert {"device", "path"} <= set(described["file.stat"]["required"])
    (device,) = board.act("devices")
    assert (device["name"], device["holder"]) == ("demo", None)
    (info,) = board.act("device.info", device="demo")
    assert info["name"] == "demo" and info["free_memory"] > 0 and info["storage_free"] > 0 and info["raw_paste"]
    assert board.act("device.exec", device="demo", code="print(1)\n1/0")[0]["stdout"] == "1\n"
    assert "ZeroDivisionError" in board.act("device.exec", device="demo", code="1/0")[0]["stderr"]
    (stat,) = board.act("file.stat", device="demo", path="/log.bin")
    assert (stat["path"], stat["kind"], stat["size"]) == ("/log.bin", "file", len(samples.log()))
    (digest,) = board.act("file.hash", device="demo", path="/log.bin")
    assert digest == {"path": "/log.bin", "algorithm": "sha256", "digest": sha256(samples.log())}
    board.act("file.mkdir", device="demo", path="/kept")
    board.act("file.rename", device="demo", path="/log.bin", to="/kept/log.bin")
    assert (board.folder / "kept" / "log.bin").read_bytes() == samples.log()
    board.act("file.remove", device="demo", path="/kept/log.bin")
    board.act("file.remove", device="demo", path="/kept")
    assert not (board.folder / "kept").exists()
    board.exec("kept = 1")
    assert board.act("device.reset", device="demo") == [{"device": "demo", "reset": "soft"}]
    assert board.exec("print('kept' in globals())") == "False\n"
    assert board.act("device.reset", device="demo", kind="hard") == [{"device": "demo", "reset": "hard"}]
    assert board.table(type="device.file", device="demo", path="/events.jsonl").num_rows == samples.EVENTS
    assert board.act("health") == [{"status": "serving"}]
    assert board.act("stats")[0]["sources"]["device.file"]["rows"] == read + samples.EVENTS


@pytest.mark.parametrize("keys", [
    # Without a schema the whole file would be read first, to find the types.
    {"type": "device.file", "path": "/long.csv", "batch_rows": 10, "flush_ms": 0, "schema": {"a": "int8", "b": "int8"}},
    {"type": "device.exec", "code": "while True: print('again')"},
    {"type": "device.exec", "code": "print('once')\nwhile True: pass"},
], ids=["file", "chatty code", "silent code"])  # fmt: skip
def test_a_reader_that_leaves_frees_the_device(
    serve: Serve, tmp_path: Path, mode: str, keys: dict[str, object]
) -> None:
    board = serve(simulated(tmp_path, "baud=115200"))
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "long.csv").write_bytes(b"a,b\n" + b"1,2\n" * 100_000)
    reader = board.client.do_get(ticket(device="demo", mode=mode, **keys))
    assert reader.read_chunk().data is not None
    reader.cancel()
    # At 115200 baud the rest would take half a minute; code without end, for ever.
    assert board.exec("print('free')") == "free\n"
    until(lambda: not board.act("stats")[0]["open"])  # it has given the device back, and is not over yet
    assert board.act("stats")[0]["cancelled"] == 1
