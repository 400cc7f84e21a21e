"""What is expected of the table, and what is refused: against the real server, the bare peer and one that lies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.errors import DataError
from fastflight.service import encode
from fastflight.service.requests import Mock
from fastflight.sources import mock
from fastflight_benchmark import table
from fastflight_benchmark.contenders import BARE
from fastflight_benchmark.loading.reading import Answer, read
from fastflight_benchmark.table import BarePeer, WrongPath
from tests.support.servers import FREE_PORT, serving

TABLES = [
    Mock(rows_per_batch=400, total_rows=1001),
    Mock(rows_per_batch=400, total_rows=1001, variant="simple"),
    Mock(rows_per_batch=400, total_rows=1001, variant="complex"),
    Mock(rows_per_batch=400, total_rows=7, variant="complex"),
    Mock(rows_per_batch=400, total_rows=0),
]


def answer_of(location: str, request: Mock) -> Answer:
    with flight.FlightClient(location) as client:
        return read(client, encode(request))


@contextmanager
def bare_peer() -> Iterator[str]:
    with BarePeer(FREE_PORT) as peer:
        yield f"grpc://127.0.0.1:{peer.port}"


def test_expected_bytes_are_rows_times_columns_times_four() -> None:
    assert table.expected_bytes(Mock(rows_per_batch=400, total_rows=1001)) == 1001 * 50 * 4
    assert table.expected_bytes(Mock(rows_per_batch=400, total_rows=1001, variant="simple")) == 1001 * 4 * 4


def test_the_ceiling_is_what_the_delay_allows() -> None:
    assert table.ceiling_mbps(Mock(delay_per_row=1e-6)) == pytest.approx(190.73, abs=0.01)
    assert table.ceiling_mbps(Mock(delay_per_row=1e-5)) == pytest.approx(19.073, abs=0.001)
    assert table.ceiling_mbps(Mock()) == math.inf


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_servers_answers_pass(mode: str) -> None:
    with serving() as server:
        for plain in TABLES:
            request = plain.model_copy(update={"mode": mode})
            table.check(request, answer_of(server.location, request), mode)


def test_the_bare_peers_answers_pass_and_name_no_path() -> None:
    with bare_peer() as location:
        for request in TABLES:
            answer = answer_of(location, request)
            table.check(request, answer, BARE)
            assert (answer.path, answer.trailer) == ("", {})


def whole(request: Mock, path: str) -> Answer:
    rows = request.total_rows
    return Answer(rows, table.expected_bytes(request), path, {"rows": rows})


def test_an_answer_on_another_path_is_refused_before_anything_else() -> None:
    request = Mock(total_rows=10)

    with pytest.raises(WrongPath, match="'async'.*'sync'"):
        table.check(request, whole(request, "sync"), "async")
    with pytest.raises(WrongPath):
        table.check(request, Answer(0, 0, "", {}), "sync")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(9, 2000, "sync", {"rows": 9}), "9 rows arrived, expected 10"),
        (Answer(10, 1999, "sync", {"rows": 10}), "1999 bytes arrived, expected 2000"),
        (Answer(10, 2000, "sync", {"rows": 11}), "the server's trailer says 11"),
        (Answer(10, 2000, "sync", {}), "the server's trailer says None"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(answer: Answer, says: str) -> None:
    with pytest.raises(DataError, match=says):
        table.check(Mock(total_rows=10), answer, "sync")


class Liar(flight.FlightServerBase):  # type: ignore[misc]
    """Gives the whole table with a correct trailer, and says `sync` whatever it was asked for."""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        asked = json.loads(ticket.ticket)
        request = Mock(rows_per_batch=asked["rows_per_batch"], total_rows=asked["total_rows"])
        reading = mock.read(request)
        schema = reading.schema.with_metadata({b"fastflight.path": b"sync"})
        trailer = pa.py_buffer(json.dumps({"rows": request.total_rows}).encode())
        last = (pa.RecordBatch.from_pylist([], schema=schema), trailer)
        batches = (batch.replace_schema_metadata(schema.metadata) for lot in reading.all_lots() for batch in lot)
        return flight.GeneratorStream(schema, (item for part in (batches, (last,)) for item in part))


@contextmanager
def lying_server() -> Iterator[str]:
    with Liar(FREE_PORT) as server:
        yield f"grpc://127.0.0.1:{server.port}"


def test_a_server_that_answers_sync_for_async_is_found_out_by_what_it_sent() -> None:
    with lying_server() as location:
        told_true, lied = Mock(total_rows=10, mode="sync"), Mock(total_rows=10, mode="async")
        table.check(told_true, answer_of(location, told_true), "sync")
        with pytest.raises(WrongPath):
            table.check(lied, answer_of(location, lied), "async")
