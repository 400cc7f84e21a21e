"""Clients that we did not write: Arrow's own in Go, Rust and Java, and ADBC. pyarrow reads what they read and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight_benchmark import mock
from tests.support.servers import ready_server

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


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The location of a server."""
    with ready_server(sources=(mock.SOURCE,)) as location:
        yield location


@dataclass
class Errands:
    """What a client has done: its answer to each step, and the folder with its files."""

    folder: Path
    readings: Any
    mock: Any
    written: Any
    absent: Any
    nonsense: Any
    health: Any
    listed: Any


@pytest.fixture(scope="module", params=sorted(CLIENTS))
def errands(request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory) -> Errands:
    """One process of each client: some take seconds to start."""
    missing(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    with flight.connect(server) as plain:
        reader = plain.do_get(flight.Ticket(json.dumps(READINGS)))
        with pa.ipc.new_stream(folder / "up.arrow", reader.schema) as writer:
            writer.write_table(reader.read_all(), max_chunksize=1000)
    steps = (
        Step("get", READINGS, "readings.arrow"),
        Step("get", MOCK, "mock.arrow"),
        Step("put", COPY, "up.arrow"),
        Step("get", ABSENT, "absent.arrow"),
        Step("get", {"type": "mock", "rows": 1}, "x"),
        Step("action", {}, "health"),
        Step("list"),
    )
    return Errands(folder, *ForeignClient(request.param, server.removeprefix("grpc://"), folder).errand(*steps))


def ours(server: str, request: object) -> pa.Table:
    with flight.connect(server) as client:
        table: pa.Table = client.do_get(flight.Ticket(json.dumps(request))).read_all()
        return table.replace_schema_metadata(None)


def kept(file: Path) -> pa.Table:
    with pa.ipc.open_stream(file) as reader:
        table: pa.Table = reader.read_all()
        return table.replace_schema_metadata(None)


def test_what_it_lists_is_what_pyarrow_lists(errands: Errands, server: str) -> None:
    assert errands.listed["code"].upper() == "OK"
    with flight.connect(server) as plain:
        assert errands.listed["texts"] == [info.endpoints[0].ticket.ticket.decode() for info in plain.list_flights()]


def test_what_it_reads_is_what_pyarrow_reads(errands: Errands, server: str) -> None:
    assert kept(errands.folder / "readings.arrow").equals(ours(server, READINGS))
    assert json.loads(errands.readings["metadata"])["rows"] == errands.readings["rows"] == 10_000
    assert kept(errands.folder / "mock.arrow").equals(ours(server, MOCK))  # by way of three endpoints
    assert errands.mock["rows"] == 30_000


def test_what_it_writes_is_read_back(errands: Errands, server: str) -> None:
    acknowledged = json.loads(errands.written["metadata"])
    assert errands.written["rows"] == acknowledged["rows"] == 10_000
    assert acknowledged["done"] and acknowledged["sha256"]
    assert ours(server, COPY).equals(ours(server, READINGS))


def test_what_it_is_told_of_an_error(errands: Errands) -> None:
    assert errands.absent["code"].replace("_", "").lower() == "notfound"
    assert "demo:/absent.csv: no such file" in errands.absent["message"]
    assert errands.nonsense["code"].replace("_", "").lower() == "invalidargument"
    assert "unknown key" in errands.nonsense["message"]
    assert [json.loads(text)["status"] for text in errands.health["texts"]] == ["serving"]


def test_adbc_reads_the_partition_that_a_flight_is(server: str) -> None:
    """Not only one of SQL: ADBC's reader of partitions takes any flight."""
    with flight.connect(server) as plain:
        info = plain.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(READINGS)))
    address = server.replace("grpc://", "grpc+tcp://")
    with adbc.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_read_partition(info.serialize())
        assert cursor.fetch_arrow_table().replace_schema_metadata(None).equals(ours(server, READINGS))
