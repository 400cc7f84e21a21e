"""Requests that are passed on: their client or the owner fails in the middle of them, or sends what is corrupt."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.app.cluster import ClusterMember
from fastflight.app.forwarded import Forwarded, vetted
from fastflight.app.routes import MOVING_SECONDS, SETTLING_SECONDS, UNOWNED, Routes
from fastflight.client.connection import ServerConnection
from fastflight.device import Inventory
from fastflight.errors import BusyError, DataError, FileMissing, ProtocolError, TransportClosed
from fastflight.service.requests import DeviceFile, DeviceSession
from fastflight.service.source import AsyncIncoming
from tests.support.function_source import FunctionSource
from tests.support.refusals import refused
from tests.support.servers import serving


class AtOneServer:
    """Has `demo` at one other server."""

    def __init__(self, location: str) -> None:
        self._location = location

    def has(self, device: str) -> bool:
        return device == "demo"

    def location(self, device: str) -> str:
        return self._location


def forwarded(routes: object) -> Forwarded:
    # Not called: no device of these tests is on this server.
    here = FunctionSource(DeviceFile, **dict.fromkeys(("read", "aread", "awrite", "aexchange"), pytest.fail))
    return Forwarded(cast(Routes, routes), here, lambda _: [], lambda _: iter(()))


@pytest.fixture
def routes() -> Iterator[Routes]:
    with serving({"demo": "sim:?telemetry=20"}) as server, Inventory({}) as inventory:
        routes = Routes(inventory, cast(ClusterMember, AtOneServer(server.location)))
        yield routes
        routes.close()


@pytest.mark.parametrize("reconnect", [False, True])
def test_a_stream_that_is_not_read_ends_at_the_owner_as_well(routes: Routes, reconnect: bool) -> None:
    """A client may leave between the schema and the first row."""

    async def scenario() -> None:
        request = DeviceSession(device="demo", reconnect=reconnect)
        reading = await forwarded(routes).aread(request)
        assert routes.open_streams == 1
        await reading.aclose()
        assert routes.open_streams == 0
        sync = forwarded(routes).read(request)
        assert routes.open_streams == 1
        sync.close()
        assert routes.open_streams == 0

    asyncio.run(scenario())


class Input:
    """What a client sends in an exchange; then it fails, or waits."""

    def __init__(self, *batches: pa.RecordBatch, error: Exception | None = None) -> None:
        self._batches, self._error = batches, error

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        for batch in self._batches:
            yield batch
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        """Has nothing to close."""


NO_DATA = pa.record_batch({"data": pa.array([None], pa.binary())})


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (Input(NO_DATA), "a row has no data"),
        (Input(error=DataError("the client has broken off")), "the client has broken off"),
    ],
)
def test_an_error_of_the_input_of_an_exchange_is_that_of_the_exchange(routes: Routes, sent: Input, said: str) -> None:
    async def scenario() -> None:
        reading = await forwarded(routes).aexchange(
            DeviceSession(device="demo"), NO_DATA.schema, cast(AsyncIncoming, sent)
        )
        try:
            with pytest.raises(DataError, match=said):
                async for _ in reading:
                    pass
        finally:
            await reading.aclose()
        assert routes.open_streams == 0

    asyncio.run(scenario())


def test_an_exchange_without_data_is_refused(routes: Routes) -> None:
    async def scenario() -> None:
        with refused(DataError, where="schema"):
            await forwarded(routes).aexchange(
                DeviceSession(device="demo"), pa.schema([("a", pa.int64())]), cast(AsyncIncoming, Input())
            )

    asyncio.run(scenario())


def test_connections_to_servers_that_have_left_are_closed() -> None:
    class Left(AtOneServer):
        def others(self) -> dict[str, str]:
            return {}

    with serving() as server, Inventory({}) as inventory:
        routes = Routes(inventory, cast(ClusterMember, Left(server.location)))
        connection = routes.route("demo")
        assert isinstance(connection, ServerConnection) and routes.route("demo") is connection
        stream = routes.opened(connection.stream(DeviceSession(device="demo")), server.location)
        routes.check()
        with pytest.raises(Exception, match="cancelled"):
            list(stream.pieces())
        assert routes.route("demo") is not connection
        routes.close()


class Settling(AtOneServer):
    """Nobody owns `demo` until the server has looked `looks` times, and other devices are taken over `until` then."""

    def __init__(self, looks: float, until: float) -> None:
        super().__init__("grpc://127.0.0.1:1")
        self._looks, self._until, self.now = looks, until, 0

    def location(self, device: str) -> str:
        self.now += 1
        return super().location(device) if self.now > self._looks else ""

    def why_gone(self, device: str) -> str:
        return ""

    @property
    def settled_seconds(self) -> float:
        return max(0.0, self.now - self._until)


@pytest.mark.parametrize(
    ("looks", "until", "gives_up_at"),
    [(5, 0, None), (20, 15, None), (20, 0, MOVING_SECONDS), (20, 10, 10 + MOVING_SECONDS), (99, 99, SETTLING_SECONDS)],
)
def test_a_device_without_an_owner_is_waited_for_while_others_are_taken_over(
    monkeypatch: pytest.MonkeyPatch, looks: int, until: int, gives_up_at: float | None
) -> None:
    """A look takes a second of the clock."""
    monkeypatch.setattr("fastflight.app.routes.LAST_LOOK_SECONDS", 0.0)
    with Inventory({}) as inventory:
        owners = Settling(looks, until)
        routes = Routes(inventory, cast(ClusterMember, owners), clock=lambda: owners.now)
        if gives_up_at is None:
            assert routes.route("demo") is not None
        else:
            with pytest.raises(BusyError, match=UNOWNED):
                routes.route("demo")
            assert owners.now == gives_up_at
        routes.close()


class BreakingOwner:
    """A connection to a server that sends one row of each stream, and then goes away."""

    location = "grpc://owner"

    def __init__(self) -> None:
        self.asked = 0

    def stream(self, request: object) -> BreakingOwner:
        self.asked += 1
        return self

    schema = pa.schema([("a", pa.int64())])

    def pieces(self) -> Iterator[tuple[pa.RecordBatch, None]]:
        yield pa.record_batch([[1]], schema=self.schema), None
        raise TransportClosed("the server went away")

    def cancel(self) -> None:
        """Has nothing to cancel."""


@pytest.mark.parametrize("request_", [DeviceFile(device="demo", path="/a.csv"), DeviceSession(device="demo")])
def test_a_stream_is_never_opened_again_after_its_first_row(request_: Any) -> None:
    owner = BreakingOwner()
    with Inventory({}) as inventory:
        routes = Routes(inventory, cast(ClusterMember, AtOneServer(owner.location)))
        routes.connection = lambda location: cast(ServerConnection, owner)  # type: ignore[method-assign]
        rows = []
        with refused(TransportClosed):
            for batches in forwarded(routes).read(request_):
                rows += batches
        assert len(rows) == owner.asked == 1

        async def scenario() -> None:
            with refused(TransportClosed):
                async for batches in await forwarded(routes).aread(request_):
                    rows.extend(batches)

        asyncio.run(scenario())
        assert len(rows) == owner.asked == 2


def test_a_refusal_reaches_a_client_that_waits_for_an_acknowledgement(routes: Routes) -> None:
    """It sends nothing more, and so would never end the write."""

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        await asyncio.Event().wait()

    async def scenario() -> None:
        request = DeviceFile(device="demo", path="/no/such/folder.csv", interrupt=True)
        with refused(FileMissing):
            async with asyncio.timeout(60):
                await forwarded(routes).awrite(request, pa.schema([("a", pa.int64())]), batches(), lambda _: None)

    asyncio.run(scenario())


SCHEMA = pa.schema([("x", pa.string())])


class HostileServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every request with one batch, which was never validated."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batch = batch

    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        return flight.GeneratorStream(SCHEMA, iter([self._batch]))


def unchecked(*offsets: int, content: bytes = b"abcd") -> pa.RecordBatch:
    """Two texts at these offsets of a buffer of four bytes."""
    good = pa.RecordBatch.from_pydict({"x": ["a", "bcd"]}).serialize().to_pybytes()
    sent = good.replace(struct.pack("<3i", 0, 1, 4), struct.pack("<3i", *offsets)).replace(b"abcd", content)
    return pa.ipc.read_record_batch(pa.py_buffer(sent), SCHEMA)


def test_rows_that_are_sound_are_passed_on() -> None:
    with HostileServer(unchecked(0, 1, 4)) as server:
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}")) as connection:
            stream = connection.stream(DeviceFile(device="demo", path="/a"))
            batch, note = next(vetted(stream))
            assert batch.to_pydict() == {"x": ["a", "bcd"]} and note is None
            stream.cancel()


@pytest.mark.parametrize(
    "batch", [unchecked(0, 4, 2), unchecked(0, 1, 4, content=b"\xff\xff\xff\xff")], ids=["lengths", "not UTF-8"]
)
def test_rows_of_another_server_are_validated(batch: pa.RecordBatch) -> None:
    with HostileServer(batch) as server:
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}")) as connection:
            stream = connection.stream(DeviceFile(device="demo", path="/a"))
            with pytest.raises(ProtocolError, match="corrupt"):
                next(vetted(stream))
            stream.cancel()
