"""Clients that we did not write: Arrow's own in Go, Rust and Java, and ADBC. pyarrow reads what they read and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.app.compose import RunningServer
from fastflight_benchmark import mock
from tests.support.servers import serving

from .clients import CLIENTS, ForeignClient, Step, missing

MOCK = {"type": "mock", "total_rows": 30_000, "rows_per_batch": 1000, "endpoints": 3}
READINGS = {"type": "device.file", "device": "demo", "path": "/readings.csv"}
COPY = {"type": "device.file", "device": "demo", "path": "/copy.csv"}
ABSENT = {"type": "device.file", "device": "demo", "path": "/absent.csv"}


@pytest.fixture(scope="module", autouse=True)
def _adbc_has_run() -> None:
    """Let Go's runtime, in which ADBC's driver runs, take the descriptors that it keeps for the life of the process."""
    with adbc.connect("grpc+tcp://127.0.0.1:1", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("SELECT 1")


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving(sources=(mock.SOURCE,)) as server:
        yield server


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest, server: RunningServer, tmp_path: Path) -> ForeignClient:
    missing(request.param)
    return ForeignClient(request.param, server.location.removeprefix("grpc://"), tmp_path)


def ours(server: RunningServer, request: object) -> pa.Table:
    with flight.connect(server.location) as client:
        table: pa.Table = client.do_get(flight.Ticket(json.dumps(request))).read_all()
        return table.replace_schema_metadata(None)


def kept(file: Path) -> pa.Table:
    with pa.ipc.open_stream(file) as reader:
        table: pa.Table = reader.read_all()
        return table.replace_schema_metadata(None)


def test_what_it_lists_is_what_pyarrow_lists(client: ForeignClient, server: RunningServer) -> None:
    (said,) = client.errand(Step("list"))
    assert said["code"].upper() == "OK"
    with flight.connect(server.location) as plain:
        assert said["texts"] == [info.endpoints[0].ticket.ticket.decode() for info in plain.list_flights()]


def test_what_it_reads_is_what_pyarrow_reads(client: ForeignClient, server: RunningServer, tmp_path: Path) -> None:
    readings, mock = client.errand(Step("get", READINGS, "readings.arrow"), Step("get", MOCK, "mock.arrow"))
    assert kept(tmp_path / "readings.arrow").equals(ours(server, READINGS))
    assert json.loads(readings["metadata"])["rows"] == readings["rows"] == 10_000
    assert kept(tmp_path / "mock.arrow").equals(ours(server, MOCK))  # by way of three endpoints
    assert mock["rows"] == 30_000


def test_what_it_writes_is_read_back(client: ForeignClient, server: RunningServer, tmp_path: Path) -> None:
    readings = ours(server, READINGS)
    with pa.ipc.new_stream(tmp_path / "up.arrow", readings.schema) as writer:
        writer.write_table(readings, max_chunksize=1000)
    (said,) = client.errand(Step("put", COPY, "up.arrow"))
    acknowledged = json.loads(said["metadata"])
    assert said["rows"] == acknowledged["rows"] == 10_000
    assert acknowledged["done"] and acknowledged["sha256"]
    assert ours(server, COPY).equals(readings)


def test_what_it_is_told_of_an_error(client: ForeignClient, server: RunningServer) -> None:
    absent, nonsense, again = client.errand(
        Step("get", ABSENT, "absent.arrow"), Step("get", {"type": "mock", "rows": 1}, "x"), Step("action", {}, "health")
    )
    assert absent["code"].replace("_", "").lower() == "notfound"
    assert "demo:/absent.csv: no such file" in absent["message"]
    assert nonsense["code"].replace("_", "").lower() == "invalidargument"
    assert "unknown key" in nonsense["message"]
    assert [json.loads(text)["status"] for text in again["texts"]] == ["serving"]


def test_adbc_reads_the_partition_that_a_flight_is(server: RunningServer) -> None:
    """Not only one of SQL: ADBC's reader of partitions takes any flight."""
    with flight.connect(server.location) as plain:
        info = plain.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(READINGS)))
    address = server.location.replace("grpc://", "grpc+tcp://")
    with adbc.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_read_partition(info.serialize())
        assert cursor.fetch_arrow_table().replace_schema_metadata(None).equals(ours(server, READINGS))
