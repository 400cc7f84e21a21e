"""The client against a hand-made server: what it asks for, what it gives, and what it makes of a broken answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.client import Device, Digest, Entry, FastFlightClient
from fastflight.client.failure import CLASS_OF_CODE, typed
from fastflight.errors import (
    BusyError,
    DataError,
    DeviceException,
    DeviceFull,
    FileMissing,
    ProtocolError,
    RequestError,
    Stopped,
    TransportError,
    UnknownName,
)
from tests.client.handmade_server import READINGS, HandmadeServer
from tests.support.refusals import refused


@pytest.fixture
def server() -> Iterator[HandmadeServer]:
    with HandmadeServer() as server:
        yield server


@pytest.fixture
def client(server: HandmadeServer) -> Iterator[FastFlightClient]:
    with FastFlightClient(server.location) as client:
        yield client


def test_a_file_becomes_a_table(client: FastFlightClient) -> None:
    seen: list[int] = []
    stream = client.read("demo", "/readings.csv", progress=lambda rows, size, total: seen.append(rows))
    assert stream.schema.names == ["time", "celsius"]
    with pytest.raises(RequestError, match="last batch"):
        _ = stream.summary
    batches = list(stream)
    # Only batches with rows are shown.
    assert (seen, [batch.num_rows for batch in batches]) == ([4, 8, 10], [4, 4, 2])
    assert pa.Table.from_batches(batches).replace_schema_metadata(None).equals(READINGS)
    assert stream.summary["sha256"] == "ab"
    pd.testing.assert_frame_equal(client.read("demo", "/readings.csv").to_pandas(), READINGS.to_pandas())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_path_is_the_one_that_the_server_reports(client: FastFlightClient, mode: str) -> None:
    with client.read("demo", "/readings.csv", mode=mode) as stream:
        assert stream.path == mode


def test_a_request_says_what_was_asked(client: FastFlightClient, server: HandmadeServer) -> None:
    client.read("demo", "/readings.csv", schema={"time": "int64"}, columns=("time",)).to_arrow()
    (asked,) = server.asked
    assert (asked["type"], asked["device"], asked["path"]) == ("device.file", "demo", "/readings.csv")
    assert (asked["schema"], asked["columns"]) == ({"time": "int64"}, ["time"])


def test_a_failure_after_rows_comes_after_them(client: FastFlightClient) -> None:
    rows = 0
    with pytest.raises(DeviceException) as caught:
        for batch in client.read("demo", "/raises.csv"):
            rows += batch.num_rows
    assert (rows, caught.value.kind, caught.value.traceback) == (4, "ValueError", "T")


@pytest.mark.parametrize("path", ["/raises.csv", "/short.csv", "/miscounted.csv"])
def test_a_stream_that_failed_is_no_empty_table_afterwards(client: FastFlightClient, path: str) -> None:
    stream = client.read("demo", path)
    for _ in range(2):
        with pytest.raises((DeviceException, ProtocolError)):
            stream.to_arrow()
    whole = client.read("demo", "/readings.csv")
    assert [whole.to_arrow().num_rows for _ in range(2)] == [10, 0]


def test_a_cancelled_stream_says_so(client: FastFlightClient) -> None:
    stream = client.read("demo", "/endless.csv")
    next(iter(stream))
    stream.cancel()
    with pytest.raises(Stopped):
        stream.to_arrow()


def test_errors_are_typed(client: FastFlightClient) -> None:
    with pytest.raises(FileMissing, match="/missing.csv: no such file. List the folder"):
        client.read("demo", "/missing.csv")
    with pytest.raises(BusyError) as busy:
        client.read("demo", "/busy.csv")
    assert busy.value.holder == "a bridge"
    with pytest.raises(UnknownName) as unknown:
        client.read("elsewhere", "/x.csv")
    assert str(unknown.value) == "elsewhere: no such device. Known: demo"
    with pytest.raises(RequestError) as wrong:
        client.read("demo", "/wrong")
    assert str(wrong.value) == "format: 'cvs' is not allowed. Did you mean 'csv'?"


def test_a_wrong_request_does_not_leave(client: FastFlightClient, server: HandmadeServer) -> None:
    with refused(RequestError, where="batch_rows"):
        client.read("demo", "/readings.csv", batch_rows=0)
    with refused(RequestError, where="columns"):
        client.read("demo", "/readings.csv", columns="time")
    assert server.asked == []


def test_an_absent_server_is_named_with_what_to_do() -> None:
    with FastFlightClient("grpc://127.0.0.1:1") as client, pytest.raises(TransportError, match="fastflight serve"):
        client.devices()


def test_rows_are_written_and_acknowledged(client: FastFlightClient, server: HandmadeServer) -> None:
    seen: list[tuple[int, int, int | None]] = []
    written = client.write("demo", "/new.csv", READINGS, progress=lambda *report: seen.append(report))
    assert server.files["/new.csv"].startswith(b'"time","celsius"\n0,20\n')
    assert (written.rows, written.bytes) == (10, len(server.files["/new.csv"]))
    assert len(written.sha256) == 64
    assert seen[-1] == (10, written.bytes, None)


@pytest.mark.parametrize(
    "rows",
    [
        READINGS.to_pandas(),
        READINGS.combine_chunks().to_batches()[0],
        READINGS.to_reader(),
        READINGS.to_batches(max_chunksize=3),
        (batch for batch in READINGS.to_batches(max_chunksize=3)),
    ],
    ids=["DataFrame", "RecordBatch", "RecordBatchReader", "list", "generator"],
)
def test_rows_come_from_anything_that_holds_them(client: FastFlightClient, rows: object) -> None:
    assert client.write("demo", "/new.csv", rows).rows == 10


@pytest.mark.parametrize("rows", [[], "readings.csv", 5, [{"a": 1}]])
def test_what_holds_no_rows_is_refused(client: FastFlightClient, rows: object) -> None:
    with pytest.raises(DataError):
        client.write("demo", "/new.csv", rows)


def test_a_named_index_is_data(client: FastFlightClient, server: HandmadeServer) -> None:
    client.write("demo", "/new.csv", READINGS.to_pandas().set_index("time"))
    assert server.files["/new.csv"].startswith(b'"celsius","time"\n')


def test_a_refused_write_gives_the_servers_reason(client: FastFlightClient, server: HandmadeServer) -> None:
    server.refuse_after = 1
    with pytest.raises(DeviceFull, match="no space left. Remove files"):
        client.write("demo", "/new.csv", READINGS.to_batches(max_chunksize=1))
    assert server.files == {}


def test_a_failing_progress_callback_ends_the_write(client: FastFlightClient, server: HandmadeServer) -> None:
    def report(rows: int, size: int, total: int | None) -> None:
        raise LookupError("nobody looks")

    with pytest.raises(LookupError, match="nobody looks"):
        client.write("demo", "/new.csv", READINGS, progress=report)


def test_actions(client: FastFlightClient, server: HandmadeServer) -> None:
    (device,) = client.devices()
    assert device == Device(name="demo", url="sim:", open=True, holder=None)
    entry = client.stat("demo", "/x")
    assert entry == Entry(path="/x", kind="file", size=3, modified=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert client.hash("demo", "/x") == Digest(algorithm="crc32", digest="ab")
    client.rename("demo", "/x", "/y")
    assert server.asked[-1] == {"action": "file.rename", "device": "demo", "path": "/x", "to": "/y", "interrupt": False}
    assert client.health() == {"status": "ok"}


def test_an_action_without_its_answer_is_an_error(client: FastFlightClient) -> None:
    with pytest.raises(ProtocolError, match="stats"):
        client.stats()


@pytest.mark.parametrize("location", ["nowhere", "http://127.0.0.1:1", ""])
def test_an_address_is_one(location: str) -> None:
    with pytest.raises(RequestError, match="Give one as grpc://127.0.0.1:8815"):
        FastFlightClient(location)


def test_every_error_that_a_server_describes_is_raised() -> None:
    for code, kind in CLASS_OF_CODE.items():
        described = {"code": code, "what": "it broke", "where": "demo", "hint": "Mend it"}
        error = typed(flight.FlightServerError("it broke", json.dumps(described).encode()), "grpc://nowhere")
        assert type(error) is kind
        assert (error.what, error.where, error.hint) == ("it broke", "demo", "Mend it")
