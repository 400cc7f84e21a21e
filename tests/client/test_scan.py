"""`client.scan`: a lazy frame of Polars gives what reading everything gives, and moves no more than the query needs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fastflight import AsyncFastFlightClient, DeviceFile, DeviceSession, FastFlightClient, FleetFile
from fastflight.app.config import RecordingSettings
from fastflight.client.connection import ServerConnection
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.errors import FileMissing, RequestError, UnknownName
from fastflight.service.requests import Request
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.docs.notebooks import record_yesterday
from tests.support.servers import serving

READINGS = DeviceFile(device="demo", path="/readings.csv")
PACKED = DeviceFile(
    device="demo", path="/log.bin", format="packed", record="<IhHB", columns=("ms", "celsius", "light", "flags")
)
time = pl.col("time")

Query = Callable[[pl.LazyFrame], pl.LazyFrame]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastFlightClient]:
    folder = tmp_path_factory.mktemp("recordings")
    record_yesterday(folder)
    with (
        serving(recordings=RecordingSettings(folder=folder), sources=(mock.SOURCE,)) as running,
        FastFlightClient(running.location) as client,
    ):
        client.info("demo")
        yield client


class Wire:
    """The requests that were sent for rows, and the rows that arrived."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.rows = 0

    @property
    def request(self) -> Request:
        (request,) = self.requests
        return request


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire, stream, pieces = Wire(), ServerConnection.stream, RowStream.pieces

    def noted(connection: ServerConnection, request: Request, report: Report | None = None) -> RowStream:
        wire.requests.append(request)
        return stream(connection, request, report)

    def counted(rows: RowStream) -> Iterator[Any]:
        for batch, note in pieces(rows):
            wire.rows += batch.num_rows
            yield batch, note

    monkeypatch.setattr(RowStream, "pieces", counted)
    monkeypatch.setattr(ServerConnection, "stream", noted)
    return wire


def everything(client: FastFlightClient, request: Request) -> pl.DataFrame:
    return pl.DataFrame(client.read_request(request))


def test_nothing_is_read_before_it_is_collected(client: FastFlightClient, wire: Wire) -> None:
    frame = client.scan(READINGS)
    assert frame.collect_schema().names() == ["time", "temperature", "humidity", "pressure", "battery"]
    assert wire.requests == []
    assert_frame_equal(frame.collect(), everything(client, READINGS))


QUERIES: dict[str, Query] = {
    "columns": lambda frame: frame.select("battery", "time"),
    "a filter by a column that is not selected": lambda frame: frame.filter(pl.col("humidity") > 50).select("battery"),
    "the first rows": lambda frame: frame.head(10),
    "a filter of the first rows": lambda frame: frame.head(1000).filter(pl.col("humidity") > 50),
    "the first rows of a filter": lambda frame: frame.filter(pl.col("humidity") > 50).head(10),
    "no row": lambda frame: frame.head(0),
    "the number of rows": lambda frame: frame.select(pl.len()),
    "groups": lambda frame: frame.group_by(time.dt.date(), maintain_order=True).agg(pl.col("temperature").mean()),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_gives_what_it_gives_for_all_rows(client: FastFlightClient, query: Query) -> None:
    got = query(client.scan(READINGS)).collect()
    assert_frame_equal(got, query(everything(client, READINGS).lazy()).collect())


def test_only_the_columns_of_a_query_are_read(client: FastFlightClient, wire: Wire) -> None:
    client.scan(READINGS).filter(pl.col("humidity") > 50).select("battery").collect()
    assert wire.request == READINGS.model_copy(update={"columns": ("humidity", "battery")})


@pytest.mark.parametrize("columns", [["device"], ["battery", "device"], ["battery"]])
def test_the_device_of_a_fleet_is_always_read(client: FastFlightClient, columns: list[str]) -> None:
    fleet = FleetFile(path="/readings.csv")
    assert_frame_equal(client.scan(fleet).select(columns).collect(), everything(client, fleet).select(columns))


def test_the_fields_of_packed_records_are_all_named(client: FastFlightClient, wire: Wire) -> None:
    assert_frame_equal(client.scan(PACKED).select("light").collect(), everything(client, PACKED).select("light"))
    assert wire.requests == [PACKED] * 2


def test_the_first_rows_end_a_stream(client: FastFlightClient, wire: Wire) -> None:
    table = Mock(rows_per_batch=1000, total_rows=100_000_000)
    assert client.scan(table).head(1500).collect().height == 1500
    assert wire.rows == 2000


def test_a_live_session_is_read_up_to_the_first_rows(client: FastFlightClient, wire: Wire) -> None:
    assert client.scan(DeviceSession(device="demo", since_seq=0)).head(2).collect().height == 2
    assert wire.rows == 2


def test_a_frame_can_be_collected_again_and_streamed_to_a_file(client: FastFlightClient, tmp_path: Path) -> None:
    frame = client.scan(READINGS).filter(pl.col("humidity") > 50)
    frame.sink_parquet(tmp_path / "humid.parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "humid.parquet"), frame.collect())


def test_errors_say_what_happened(client: FastFlightClient) -> None:
    with pytest.raises(UnknownName, match="no such device. Known: demo"):
        client.scan(DeviceFile(device="nothing", path="/readings.csv"))
    client.write("demo", "/gone.csv", pl.DataFrame({"n": [1]}))
    frame = client.scan(DeviceFile(device="demo", path="/gone.csv"))
    client.write("demo", "/gone.csv", pl.DataFrame({"other": ["x"]}))
    with pytest.raises(pl.exceptions.PolarsError, match="n"):
        frame.collect()
    client.remove("demo", "/gone.csv")
    with pytest.raises(FileMissing):
        frame.collect()


def test_without_polars_it_says_how_to_install_it(client: FastFlightClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(RequestError, match="`scan` needs the package polars, which is not installed. pip install"):
        client.scan(READINGS)


def test_the_asynchronous_client_scans_too(client: FastFlightClient) -> None:
    async def main() -> int:
        async with AsyncFastFlightClient(client.location) as asynchronous:
            return (await asynchronous.scan(READINGS).collect_async()).height

    assert asyncio.run(main()) == 10_000
