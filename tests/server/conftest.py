"""A server in this process, on a port of its own, with sources made for the tests, and a plain pyarrow client."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as flight
import pytest
import structlog

from fastflight.access.action import Body
from fastflight.concurrency import Shards
from fastflight.errors import BusyError, DataError, DeviceException, FileMissing, TransportTimeout
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import Action, FlightServer, Tls
from fastflight.server.deadlines import Deadlines
from fastflight.service import Catalog, DataSource
from fastflight.service.requests import Demands, Request, Verb
from fastflight.service.source import Acknowledge, Batches, Noted, Progress, Reading, Summary
from fastflight_benchmark import mock
from tests.support.function_source import FunctionSource, sync_write
from tests.support.waiting import until

# For waits that end as soon as something happens; reached only when it does not.
SOON = 60.0
# Between the signs of life of a source that waits.
IDLE_SECONDS = 0.01
SCHEMA = pa.schema([("n", pa.int64())])

ERRORS: dict[str, BaseException] = {
    "busy": BusyError("in use", holder="a bridge", where="demo", hint="Wait"),
    "missing": FileMissing("no such file", where="demo:/x.csv"),
    "data": DataError("bad row"),
    "timeout": TransportTimeout("silent", where="demo"),
    "device": DeviceException("it raised", kind="ValueError", traceback="Traceback (on the board)", where="demo"),
    "long": DeviceException("é" * 50_000, kind="ValueError", traceback="é" * 50_000),
    "bug": ZeroDivisionError("secret text"),
    "cancelled": asyncio.CancelledError(),
    "exit": SystemExit(2),
}


def ticket(**keys: object) -> flight.Ticket:
    return flight.Ticket(json.dumps(keys))


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> None:
    """Log unforeseen errors without colours and source code: to draw those took most of the time of some tests."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each sign of life: only then does a sync source hear that nobody wants its rows."""
    monkeypatch.setattr("fastflight.runtime.outgoing.HEARTBEAT_SECONDS", 0.0)


class Trial(Request):
    """Does as it is told."""

    type: ClassVar[str] = "trial"
    demands: ClassVar[Demands] = {"read": Verb.READ, "write": Verb.WRITE}

    rows: int = 3
    error: str = ""
    at_open: bool = False
    idle: bool = False
    big: bool = False
    dictionary: bool = False
    silences: int = 0
    outages: int = 0
    device: str | None = None


@dataclass
class Trials:
    """The source behind `Trial`, and what happened to it."""

    closed: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    taken: list[int] = field(default_factory=list)
    broke_off: list[str] = field(default_factory=list)
    # Called when a write has broken off.
    ended: Callable[[], object] = lambda: None

    @property
    def source(self) -> FunctionSource:
        return FunctionSource(
            Trial, read=self.read, aread=self.aread, write=sync_write(self.awrite), awrite=self.awrite
        )

    def schema(self, request: Trial) -> pa.Schema:
        if request.dictionary:
            return pa.schema([("n", pa.dictionary(pa.int8(), pa.string()))])
        return SCHEMA

    def batch(self, request: Trial, number: int) -> pa.RecordBatch:
        if request.dictionary:
            return pa.record_batch(
                [pa.array([str(number)]).dictionary_encode().cast(self.schema(request).field(0).type)], ["n"]
            )
        return pa.record_batch([pa.array([number] * (1_000_000 if request.big else 1), pa.int64())], schema=SCHEMA)

    def read(self, request: Trial) -> Reading:
        if request.at_open:
            raise ERRORS[request.error]
        return Reading(self.schema(request), self._batches(request), lambda: {"sha256": "abc"})

    def _batches(self, request: Trial) -> Iterator[Batches]:
        try:
            self.begun.set()
            for _ in range(request.silences):
                yield []
            for number in range(request.outages):
                yield [Noted(self.batch(request, 0).slice(0, 0), {"outage": {"number": number}})]
            for number in range(request.rows):
                yield [self.batch(request, number)]
            if request.error:
                raise ERRORS[request.error]
            while request.idle:  # a sync source that waits shows signs of life
                self.closed.wait(IDLE_SECONDS)
                yield []
        finally:
            self.closed.set()

    async def aread(self, request: Trial) -> Reading:
        if request.at_open:
            raise ERRORS[request.error]
        return Reading(self.schema(request), self._abatches(request), lambda: {"sha256": "abc"})

    async def _abatches(self, request: Trial) -> AsyncIterator[Batches]:
        try:
            self.begun.set()
            for _ in range(request.silences):
                yield []
            for number in range(request.outages):
                yield [Noted(self.batch(request, 0).slice(0, 0), {"outage": {"number": number}})]
            for number in range(request.rows):
                yield [self.batch(request, number)]
            if request.error:
                raise ERRORS[request.error]
            if request.idle:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.closed.set()

    async def awrite(
        self, request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        rows = 0
        try:
            async for batch in batches:
                rows = self._take(request, batch, rows, acknowledge)
        except BaseException as error:
            self._broke_off(error)
            raise
        return {"rows": rows, "bytes": 8 * rows, "sha256": "abc"}

    def _broke_off(self, error: BaseException) -> None:
        self.broke_off.append(type(error).__name__)
        self.ended()

    def _take(self, request: Trial, batch: pa.RecordBatch, rows: int, acknowledge: Acknowledge) -> int:
        if request.error and rows:
            raise ERRORS[request.error]
        self.begun.set()
        self.taken.append(batch.num_rows)
        acknowledge(Progress(rows + batch.num_rows, 8 * (rows + batch.num_rows)))
        return rows + batch.num_rows


class Greeting(Body):
    name: str


@dataclass
class TrialServer:
    """A server under test."""

    server: FlightServer
    shards: Shards
    trials: Trials
    client: flight.FlightClient

    def tasks(self) -> int:
        """Tasks on the shards."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return sum(shard.submit(count()).result(SOON) for shard in self.shards)

    def stats(self) -> dict[str, Any]:
        return self.server._registry.stats()

    def settled(self) -> bool:
        """Wait until no stream is open, and no task is left: each look is a turn of the loops, in which one may end."""
        return self.server._registry.wait_empty(SOON) and any(self.tasks() == 0 for _ in range(100))


class Later:
    """The server's deadlines at a clock that a test sets, checked when it says so."""

    def __init__(self, running: TrialServer) -> None:
        self.late = 0.0
        self.registry = running.server._registry
        self._deadlines = Deadlines(self.registry, running.server.port, lambda: time.monotonic() + self.late)

    def after(self, seconds: float) -> None:
        self.late += seconds
        self._deadlines.look()

    def reader(self) -> Stream:
        """The stream whose client is offered something, once there is one."""
        return self._stream(lambda stream: stream.offered)

    def writer(self) -> Stream:
        """The stream whose client is to send something, once there is one."""
        return self._stream(lambda stream: stream.awaited)

    def _stream(self, waits: Callable[[Stream], float]) -> Stream:
        return until(lambda: [stream for stream in self.registry.waiting_for_clients() if waits(stream)])[0]

    def metrics(self) -> dict[str, float]:
        samples = [sample for metric in self.registry.metrics() for sample in metric.samples]
        told = {(each.name, *each.labels.values()): each.value for each in samples}
        return {
            "readers": told["fastflight_overdue_total", "reader"],
            "writers": told["fastflight_overdue_total", "writer"],
            "cut": told["fastflight_connections_cut_total",],
        }


@contextmanager
def trial_server(
    limits: Limits = DEFAULT_LIMITS, trial: DataSource[Trial] | None = None, tls: Tls | None = None, **more: Any
) -> Iterator[TrialServer]:
    """A server with two sources: the benchmark table, and `trial` or the one that does as it is told."""
    trials = Trials()
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    catalog.add(trial or trials.source)
    greet = Action("greet", "Says hello.", Greeting, lambda body: [{"said": f"hello {body.name}"}])
    shards = Shards(2, "test").start()
    scheme = "grpc" if tls is None else "grpc+tls"
    server = FlightServer(
        catalog,
        [greet],
        shards=shards,
        location=f"{scheme}://127.0.0.1:0",
        registry=StreamRegistry(limits),
        tls=tls,
        **more,
    )
    client = flight.connect(f"{scheme}://127.0.0.1:{server.port}")
    yield TrialServer(server, shards, trials, client)
    client.close()
    assert server.close(0)
    assert not any(shard.running for shard in shards)


@pytest.fixture
def running() -> Iterator[TrialServer]:
    with trial_server() as started:
        yield started


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)
