"""Rows between the client and other libraries: DuckDB, Polars and pandas take them, and Polars gives them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fastflight import AsyncFastFlightClient, Credentials, FastFlightClient, FleetFile
from fastflight.client import Endpoint, IncompleteWarning
from fastflight.service.choices import Mode
from fastflight.simulator import samples
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.servers import ready_server


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with ready_server(sources=(mock.SOURCE,)) as location:
        yield location


@pytest.fixture
def client(location: str) -> Iterator[FastFlightClient]:
    with FastFlightClient(location) as client:
        yield client


def test_duckdb_reads_endpoints_side_by_side(client: FastFlightClient) -> None:
    with client.read_parallel(FleetFile(path="/readings.csv")) as fleet:  # noqa: F841  # DuckDB finds it by its name
        rows = duckdb.sql("select device, count(*) from fleet group by device").fetchall()
    assert rows == [("demo", 10_000)]


def test_duckdb_reads_no_more_than_it_needs(client: FastFlightClient) -> None:
    table = Mock(rows_per_batch=1000, total_rows=100_000_000)
    read: list[int] = []
    with client.read_request(table, progress=lambda rows, size, total: read.append(rows)) as stream:
        relation = duckdb.from_arrow(pa.RecordBatchReader.from_stream(stream))
        assert len(relation.limit(10).fetchall()) == 10
    assert read[-1] < table.total_rows / 10


def test_an_endpoint_is_read_where_it_was_sent(client: FastFlightClient) -> None:
    table = Mock(rows_per_batch=100, total_rows=1000, endpoints=4)
    sent = [pickle.loads(pickle.dumps(endpoint)) for endpoint in client.endpoints(table)]
    assert len(sent) == 4
    assert pa.concat_tables(map(Endpoint.to_arrow, sent)) == client.read_request(table).to_arrow()


def test_an_endpoint_does_not_print_its_token(location: str) -> None:
    with FastFlightClient(location, credentials=Credentials(token="secret")) as client:
        assert "secret" not in repr(client.endpoints(Mock(total_rows=1)))


def test_the_asynchronous_client_has_endpoints(location: str) -> None:
    async def rows() -> int:
        async with AsyncFastFlightClient(location) as client:
            return sum(one.to_arrow().num_rows for one in await client.endpoints(Mock(total_rows=10)))

    assert asyncio.run(rows()) == 10


def test_an_answer_is_read_as_it_comes_and_once(client: FastFlightClient) -> None:
    stream = client.read_request(Mock(rows_per_batch=100))
    reader = pa.RecordBatchReader.from_stream(stream)
    first = reader.read_next_batch()
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == stream.summary["rows"]
    with pytest.raises(pa.ArrowException, match="these rows have been read. Ask again"):
        pa.RecordBatchReader.from_stream(stream).read_all()


def test_a_failure_reaches_whoever_reads(client: FastFlightClient) -> None:
    stream = client.exec("demo", "print(1)\nraise ValueError('no')")
    with pytest.raises(pa.ArrowException, match="the board raised ValueError: no"):
        pa.RecordBatchReader.from_stream(stream).read_all()
    failing = client.exec("demo", "print(1)\nraise ValueError('no')")  # noqa: F841
    with pytest.raises(duckdb.Error, match="ValueError"):
        duckdb.sql("select * from failing").fetchall()


def test_what_does_not_fit_is_told_to_whoever_reads(client: FastFlightClient) -> None:
    client.write("demo", "/few.csv", pd.DataFrame({"n": ["x", "y"]}))
    with pytest.warns(IncompleteWarning, match="is not int64"):
        assert pl.DataFrame(client.read("demo", "/few.csv", schema={"n": "int64"}))["n"].to_list() == [None, None]


@pytest.mark.parametrize("path", ["/polars.csv", "/polars.jsonl", "/polars.arrow"])
def test_polars_is_written(client: FastFlightClient, path: str) -> None:
    frame = pl.DataFrame({"n": range(10_000), "kind": ["a", "b"] * 5000}, schema_overrides={"kind": pl.Categorical})
    written = client.write("demo", path, frame)
    assert written.rows == 10_000
    back = pl.DataFrame(client.read("demo", path))
    assert back["n"].to_list() == frame["n"].to_list()
    assert back["kind"].cast(pl.String).to_list() == frame["kind"].cast(pl.String).to_list()


def test_polars_is_written_by_the_asynchronous_client(location: str) -> None:
    async def write() -> int:
        async with AsyncFastFlightClient(location) as client:
            return (await client.write("demo", "/polars.csv", pl.DataFrame({"n": [1, 2]}))).rows

    assert asyncio.run(write()) == 2


def test_an_answer_is_written_to_another_file(client: FastFlightClient) -> None:
    written = client.write("demo", "/copy.jsonl", client.read("demo", "/events.jsonl"))
    assert written.rows == len(samples.events().splitlines())


def test_local_files_may_be_named_by_text(client: FastFlightClient, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "x").write_bytes(b"x")
    assert client.put_file("demo", "/x", str(tmp_path / "tree" / "x")).bytes == 1
    assert client.get_file("demo", "/x", str(tmp_path / "y")).bytes == 1
    client.put_tree("demo", "/tree", str(tmp_path / "tree"))
    client.get_tree("demo", "/tree", str(tmp_path / "back"))
    assert (tmp_path / "back" / "x").read_bytes() == (tmp_path / "y").read_bytes() == b"x"


def test_a_local_file_is_written_as_it_is(client: FastFlightClient, tmp_path: Path) -> None:
    content = bytes(range(256)) * 400
    (tmp_path / "x.bin").write_bytes(content)
    totals: list[int | None] = []
    written = client.write("demo", "/x.bin", tmp_path / "x.bin", progress=lambda rows, size, all: totals.append(all))
    assert (written.bytes, set(totals)) == (len(content), {len(content)})
    pieces = client.read("demo", "/x.bin", format="raw").to_arrow().column("data").to_pylist()
    assert b"".join(pieces) == content


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_rows_that_fail_half_way_leave_the_old_file(client: FastFlightClient, mode: Mode) -> None:
    table = pa.table({"n": range(10_000)})

    def failing() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=100)
        raise LookupError("the rows ran out")

    old = client.write("demo", "/kept.csv", table.slice(0, 3), mode=mode)
    with pytest.raises(LookupError, match="ran out"):
        client.write("demo", "/kept.csv", failing(), mode=mode)
    assert client.hash("demo", "/kept.csv").digest == old.sha256
    assert [entry.path for entry in client.ls("demo") if "kept" in entry.path] == ["/kept.csv"]


def test_without_a_location_it_is_the_server_of_the_environment(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFLIGHT_SERVER", location)
    with FastFlightClient() as client:
        assert client.location == location
        assert [device.name for device in client.devices()] == ["demo"]
    monkeypatch.delenv("FASTFLIGHT_SERVER")
    assert FastFlightClient().location == "grpc://127.0.0.1:8815"
    assert FastFlightClient("grpc://127.0.0.1:1").location == "grpc://127.0.0.1:1"
