"""Endpoints side by side: both clients against real servers, the answer always that of one stream."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import AsyncFastFlightClient, FastFlightClient, parallel
from fastflight.client.parallel import combined
from fastflight.concurrency import Shards
from fastflight.errors import BusyError, RequestError, Stopped, TransportClosed, TransportError, TransportTimeout
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.service.requests import Request
from fastflight.service.source import Batches, Estimate, Part, Parts, Reading
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.function_source import FunctionSource
from tests.support.refusals import refused

SOON = 60.0
# Between the signs of life of a part that goes on.
IDLE_SECONDS = 0.01
SCHEMA = pa.schema([("n", pa.int64())])


class Divided(Request):
    """Rows of the numbers 0 to 9, a part for each; part `bad` fails after its row, and part `idle` goes on.

    Part `late` is not answered before the servers may.
    """

    type: ClassVar[str] = "divided"

    number: int | None = None
    bad: int = -1
    idle: int = -1
    late: int = -1
    other: int = -1


class Servers:
    """Servers of `divided` and `mock`; `where` says at which locations a part is to be had."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.where: Callable[[int], list[str]] = lambda number: []
        self.asked: list[tuple[int, int]] = []
        self.ended = threading.Semaphore(0)
        self.may_answer = threading.Event()
        # Whether the late part waited for that, and not for ever.
        self.answered: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.locations: list[str] = []
        self.ordered = True
        self.broken: TransportError | None = None

    def start(self) -> str:
        index = len(self.locations)
        catalog = Catalog()
        catalog.add(mock.SOURCE)
        catalog.add(FunctionSource(Divided, read=lambda request: self.read(index, request), parts=self.parts))
        server = FlightServer(catalog, shards=Shards().start(), location="grpc://127.0.0.1:0")
        self._stack.callback(server.close, 0)
        self.locations.append(f"grpc://127.0.0.1:{server.port}")
        return self.locations[-1]

    def parts(self, request: Divided, known: Estimate) -> Parts[Divided]:
        numbers = range(10)
        return Parts(
            [Part(request.model_copy(update={"number": number}), self.where(number)) for number in numbers],
            ordered=self.ordered,
        )

    def read(self, index: int, request: Divided) -> Reading:
        number = request.number
        assert number is not None
        self.asked.append((index, number))
        if self.broken is not None:
            raise self.broken
        if number == request.late:
            self.answered.put(self.may_answer.wait(SOON))
        schema = pa.schema([("other", pa.int64())]) if number == request.other else SCHEMA

        def batches() -> Iterator[Batches]:
            try:
                yield [pa.record_batch([pa.array([number])], schema=schema)]
                if number == request.bad:
                    raise BusyError("in use", holder="a bridge", where=f"part {number}")
                while number == request.idle:
                    self.may_answer.wait(IDLE_SECONDS)
                    yield []
            finally:
                self.ended.release()

        return Reading(schema, batches(), lambda: {"numbers": [number]})


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    # Each sign of life is sent: only then does a sync source hear that nobody wants its rows.
    monkeypatch.setattr("fastflight.runtime.outgoing.HEARTBEAT_SECONDS", 0.0)
    with ExitStack() as stack:
        yield Servers(stack)


class EitherClient:
    """Either client, asked in the same words."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def read(self, location: str, request: Request, **how: Any) -> tuple[pa.Table, dict[str, Any]]:
        if self.kind == "sync":
            with FastFlightClient(location) as client, client.read_parallel(request, **how) as stream:
                table = stream.to_arrow()
                return table, dict(stream.summary)
        return asyncio.run(self._aread(location, request, **how))

    async def _aread(self, location: str, request: Request, **how: Any) -> tuple[pa.Table, dict[str, Any]]:
        async with AsyncFastFlightClient(location) as client, await client.read_parallel(request, **how) as stream:
            table = await stream.to_arrow()
            return table, dict(stream.summary)


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest) -> EitherClient:
    return EitherClient(request.param)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("parallel", [1, 3, 20])
def test_parts_in_order_are_the_whole(servers: Servers, client: EitherClient, mode: Any, parallel: int) -> None:
    request = Mock(mode=mode, variant="complex", total_rows=1003, rows_per_batch=100, endpoints=7)
    with FastFlightClient(servers.start()) as plain:
        whole = plain.read_request(request).to_arrow()
    table, summary = client.read(servers.locations[0], request, parallel=parallel)
    assert table.equals(whole)
    assert summary["rows"] == 1003
    assert summary["bytes"] == mock.SOURCE.describe(request).bytes
    assert [part["rows"] for part in summary["endpoints"]] == [100, 200, 100, 200, 100, 200, 103]


def test_without_order_every_row_comes_once(servers: Servers, client: EitherClient) -> None:
    table, summary = client.read(servers.start(), Divided(mode="sync"), ordered=False)
    assert sorted(table["n"].to_pylist()) == list(range(10))
    assert summary["numbers"] == list(range(10))


def test_an_error_of_one_endpoint_is_that_of_the_whole_and_ends_the_others(
    servers: Servers, client: EitherClient
) -> None:
    location = servers.start()
    with refused(BusyError, holder="a bridge", where="part 2"):
        client.read(location, Divided(mode="sync", bad=2, idle=0), ordered=False)
    for _ in servers.asked:
        assert servers.ended.acquire(timeout=SOON)


def test_an_endpoint_with_other_columns_is_refused(servers: Servers, client: EitherClient) -> None:
    with pytest.raises(Exception, match="other columns than the first"):
        client.read(servers.start(), Divided(mode="sync", other=3))


async def aread_one(location: str, request: Request) -> None:
    """Leave after the first batch."""
    async with (
        AsyncFastFlightClient(location) as client,
        await client.read_parallel(request, ordered=False) as stream,
    ):
        assert (await anext(stream)).num_rows == 1


def read_one(location: str, request: Request) -> None:
    with FastFlightClient(location) as client:
        with client.read_parallel(request, ordered=False) as stream:
            assert next(iter(stream)).num_rows == 1
        with pytest.raises(Stopped):
            next(iter(stream))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_leaving_ends_all_endpoints_and_waits_for_none_without_an_answer(
    servers: Servers, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "LEAVE_SECONDS", 0.01)
    location, request = servers.start(), Divided(mode="sync", idle=0, late=1)
    asyncio.run(aread_one(location, request)) if kind == "async" else read_one(location, request)
    servers.may_answer.set()
    assert servers.answered.get(timeout=2 * SOON)
    for _ in servers.asked:
        assert servers.ended.acquire(timeout=SOON)


def test_locations_are_followed_and_the_next_one_tried(servers: Servers, client: EitherClient) -> None:
    first, second = servers.start(), servers.start()
    absent = "grpc://127.0.0.1:1"
    reuse = "arrow-flight-reuse-connection://?"
    servers.where = lambda number: [[second], [absent, second], [reuse], [first], []][number % 5]
    table, _ = client.read(first, Divided(mode="sync"))
    assert table["n"].to_pylist() == list(range(10))
    assert sorted(servers.asked, key=lambda asked: asked[1]) == [
        (1 if number % 5 < 2 else 0, number) for number in range(10)
    ]


def test_a_location_that_nobody_answers_at_is_an_error(servers: Servers, client: EitherClient) -> None:
    servers.where = lambda number: ["grpc://127.0.0.1:1"] if number == 4 else []
    with pytest.raises(TransportError, match="no server answers"):
        client.read(servers.start(), Divided(mode="sync"))


@pytest.mark.parametrize("error", [TransportClosed("it was pulled"), TransportTimeout("the board says nothing")])
def test_what_a_server_has_begun_is_asked_of_no_other(
    servers: Servers, client: EitherClient, error: TransportError
) -> None:
    first, second = servers.start(), servers.start()
    servers.where = lambda number: [first, second]
    servers.broken = error
    with pytest.raises(type(error), match=error.what):
        client.read(second, Divided(mode="sync"), parallel=1)
    assert servers.asked == [(0, 0)]


@pytest.mark.parametrize("parallel", [0, 65])
def test_so_many_at_a_time_is_refused(servers: Servers, client: EitherClient, parallel: int) -> None:
    with pytest.raises(RequestError, match="1 to 64"):
        client.read(servers.start(), Mock(total_rows=1), parallel=parallel)


def test_the_flight_says_whether_its_endpoints_are_in_order(servers: Servers) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"type": "divided"}')
    with flight.connect(servers.start()) as plain:
        for servers.ordered in (True, False):
            info = plain.get_flight_info(descriptor)
            assert (len(info.endpoints), info.ordered) == (10, servers.ordered)


def test_what_several_said_is_added_up() -> None:
    assert combined(
        [
            {"rows": 1, "duration_seconds": 2.0, "failed": [], "sha256": "a", "ended": True},
            {"rows": 2, "duration_seconds": 1.0, "failed": ["x"]},
        ]
    ) == {
        "rows": 3,
        "duration_seconds": 2.0,
        "failed": ["x"],
        "endpoints": [
            {"rows": 1, "duration_seconds": 2.0, "failed": [], "sha256": "a", "ended": True},
            {"rows": 2, "duration_seconds": 1.0, "failed": ["x"]},
        ],
    }


def test_the_summary_comes_at_the_end(servers: Servers) -> None:
    request = Divided(mode="sync")
    with FastFlightClient(servers.start()) as client, client.read_parallel(request) as stream:
        for _ in range(10):  # the servers have sent everything, and nobody has taken a row
            assert servers.ended.acquire(timeout=SOON)
        with pytest.raises(RequestError, match="last batch"):
            stream.summary  # noqa: B018
        seen: list[int] = []
        stream.reporting(lambda *report: seen.append(report[0]))
        list(stream)
        assert seen[-1] == 10
        assert stream.path == "sync"
        assert stream.gaps == []
