"""Own sources that misbehave: the client gets a typed error that names the source, and another reader goes on."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest
import structlog

from fastflight import FastFlightClient, Source, SourceRequest, create_server
from fastflight.app.running import RunningServer
from fastflight.concurrency import shards
from fastflight.errors import RequestError, SourceError, Stopped
from fastflight.service import own_calls

SOON = 10.0
BATCHES = 4


class Steady(SourceRequest):
    type = "steady"


class Bad(SourceRequest):
    type = "bad"
    how: str = ""


class Slow(SourceRequest):
    type = "slow"
    where: str = "in the middle"


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number]})


class Unreadable:
    """Rows whose stream cannot be opened."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ZeroDivisionError("secret text")


def raises(error: BaseException) -> Callable[[], Any]:
    def give() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise error

    return give


def endless() -> Iterator[pa.RecordBatch]:
    try:
        while True:
            yield batch(0)
    finally:
        ENDED.set()


def fails_in_clean_up() -> Iterator[pa.RecordBatch]:
    try:
        yield batch(0)
    finally:
        raise ZeroDivisionError("secret text")


def blocks() -> Iterator[pa.RecordBatch]:
    yield batch(0)
    RELEASED.wait(SOON)
    TURNS_AGAIN.set()


ENDED, RELEASED, TURNS_AGAIN, GO_ON = (threading.Event() for _ in range(4))
# What each bad source gives, and what its client is told.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "an error": (raises(ValueError("secret text")), "raised ValueError"),
    "memory": (raises(MemoryError()), "raised MemoryError"),
    "exit": (raises(SystemExit(1)), "raised SystemExit"),
    "interrupt": (raises(KeyboardInterrupt()), "raised KeyboardInterrupt"),
    "generator exit": (raises(GeneratorExit()), "raised GeneratorExit"),
    "cancelled": (raises(asyncio.CancelledError()), "raised CancelledError"),
    "clean-up": (fails_in_clean_up, "raised ZeroDivisionError"),
    "other columns": (lambda: iter([batch(0), pa.record_batch({"m": [0]})]), "changed its columns"),
    "another type": (lambda: iter([batch(0), pa.record_batch({"n": ["a"]})]), "n: int64, n: string"),
    "another frame": (lambda: iter([pd.DataFrame({"n": [0]}), pd.DataFrame({"m": [0]})]), "changed its columns"),
    "a stream that raises": (lambda: iter([Unreadable()]), "Unreadable raised ZeroDivisionError"),
    "a later stream that raises": (lambda: iter([batch(0), Unreadable()]), "Unreadable raised ZeroDivisionError"),
    "no batch": (lambda: iter([]), "gave no rows, so its columns are not known. Give it a function `describe`"),
    "no rows": (lambda: iter([{"n": 0}]), "it gave dict, not record batches, tables or DataFrames"),
}


def read(request: Bad) -> Any:
    if request.how == "refused":
        raise RequestError("there is none of it", where="how")
    return {**{how: give for how, (give, _) in BAD.items()}, "endless": endless}[request.how]()


async def aread(request: Bad) -> AsyncIterator[Any]:
    items = blocks() if request.how == "blocks" else read(request)
    for item in items:
        await asyncio.sleep(0)
        yield item


def steady(request: Steady) -> Iterator[pa.RecordBatch]:
    for number in range(BATCHES):
        if number:
            GO_ON.wait(SOON)
        yield batch(number)


async def asteady(request: Steady) -> AsyncIterator[pa.RecordBatch]:
    for number in range(BATCHES):
        if number:
            await asyncio.to_thread(GO_ON.wait, SOON)
        yield batch(number)


def slow(request: Slow) -> Any:
    """Block until RELEASED: before the first rows, or between the first and the second."""
    if request.where == "at the beginning":
        RELEASED.wait(SOON)
    return slow_rows()


def slow_rows() -> Iterator[pa.RecordBatch]:
    try:
        yield batch(0)
        RELEASED.wait(SOON)
        yield batch(1)
    finally:
        ENDED.set()


async def aslow(request: Slow) -> AsyncIterator[pa.RecordBatch]:
    try:
        if request.where == "in the middle":
            yield batch(0)
        await asyncio.sleep(SOON)
    finally:
        ENDED.set()


STEADY = Source(Steady, read=steady, aread=asteady)


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> None:
    """Log tracebacks without colours and source code, which takes long to draw."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with create_server(
        "grpc://127.0.0.1:0",
        sources=[Source(Bad, read=read, aread=aread), Source(Slow, read=slow, aread=aslow, timeout=0.1), STEADY],
        http="0",
    ) as running:
        with FastFlightClient(running.location) as client:
            client.health()  # gRPC opens a descriptor for its first connection, and keeps it
        yield running


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def client(server: RunningServer, mode: Any) -> Iterator[FastFlightClient]:
    """A client; while it is used, another one is in the middle of reading, and must get all of its rows."""
    with FastFlightClient(server.location) as other, FastFlightClient(server.location) as client:
        GO_ON.clear()
        reading = other.read_request(Steady(mode=mode))
        parts = iter(reading)
        rows = next(parts).num_rows
        yield client
        GO_ON.set()
        assert rows + sum(part.num_rows for part in parts) == BATCHES


@pytest.mark.parametrize("how", BAD)
def test_a_typed_error_with_its_name(client: FastFlightClient, mode: Any, how: str) -> None:
    with pytest.raises(SourceError) as caught:
        client.read_request(Bad(how=how, mode=mode)).to_arrow()
    assert caught.value.where == "source bad"
    assert BAD[how][1] in str(caught.value)
    assert "secret text" not in str(caught.value) and ".py" not in str(caught.value)


def test_an_endless_answer_ends_with_its_reader(client: FastFlightClient, mode: Any) -> None:
    ENDED.clear()
    reading = client.read_request(Bad(how="endless", mode=mode))
    next(iter(reading))
    reading.cancel()
    assert ENDED.wait(SOON)


def test_an_endless_answer_ends_with_the_server(mode: Any) -> None:
    ENDED.clear()
    with create_server("grpc://127.0.0.1:0", sources=[Source(Bad, read=read, aread=aread)]) as server:
        client = FastFlightClient(server.location)
        reading = client.read_request(Bad(how="endless", mode=mode))
        parts = iter(reading)
        next(parts)
        server.served._registry.stop_all()
        with client, pytest.raises(Stopped):
            deque(parts, 0)
    assert ENDED.wait(SOON)


@pytest.mark.parametrize("mode", ["async"])
def test_a_loop_that_is_blocked(
    server: RunningServer, client: FastFlightClient, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "STUCK_SECONDS", 0.0)
    monkeypatch.setattr(shards, "BLOCKED_SECONDS", 0.0)
    RELEASED.clear()
    try:
        for _ in range(2):  # the one that blocks, and one that finds it blocked
            with pytest.raises(SourceError, match="source bad: it has blocked its event loop for .* In aread, await"):
                client.read_request(Bad(how="blocks", mode=mode)).to_arrow()
        refused = httpx.post(f"{server.http}/stream", json={"type": "bad", "how": "blocks"})
        assert (refused.status_code, refused.json()["code"]) == (500, "source"), refused.text
        GO_ON.set()
        assert client.read_request(Steady(mode=mode)).to_arrow().num_rows == BATCHES
        assert not TURNS_AGAIN.is_set()
    finally:
        RELEASED.set()


def test_errors_for_the_client_are_passed_on(client: FastFlightClient, mode: Any) -> None:
    with pytest.raises(RequestError, match="how: there is none of it"):
        client.read_request(Bad(how="refused", mode=mode)).to_arrow()


@pytest.mark.parametrize("where", ["at the beginning", "in the middle"])
def test_a_source_that_is_late(client: FastFlightClient, mode: Any, where: str) -> None:
    RELEASED.clear()
    ENDED.clear()
    rows = 0
    with pytest.raises(SourceError, match=r"source slow: a?read has given nothing for 0\.1 s"):
        for part in client.read_request(Slow(where=where, mode=mode)):
            rows += part.num_rows
    assert rows == (where == "in the middle")
    RELEASED.set()
    if (where, mode) != ("at the beginning", "sync"):  # that one has made no iterator yet
        assert ENDED.wait(SOON)


@pytest.mark.parametrize("mode", ["sync"])
def test_calls_that_do_not_return_are_limited(
    client: FastFlightClient, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_calls, "MAX_OVERDUE", 1)
    RELEASED.clear()
    ENDED.clear()
    with pytest.raises(SourceError, match="read has given nothing"):
        client.read_request(Slow(mode=mode)).to_arrow()
    with pytest.raises(SourceError, match="source slow: 1 of its earlier calls have not returned"):
        client.read_request(Slow(mode=mode)).to_arrow()
    RELEASED.set()
    assert ENDED.wait(SOON)
