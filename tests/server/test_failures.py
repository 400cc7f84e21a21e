"""However a source fails, and wherever: a typed error at the client, and never a short table that looks whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.errors import DeviceError, FastFlightError, FileMissing
from fastflight.service.requests import Request
from fastflight.service.source import Batches, Reading, Summary
from tests.support.function_source import FunctionSource

from .conftest import SCHEMA, TrialServer, ticket, trial_server

BATCHES = 4
# What a source may raise, and how it comes to the client: a cancelled one may be asked again, a bug is a bug.
RAISED: dict[str, tuple[type[BaseException], type[Exception]]] = {
    "cancelled": (asyncio.CancelledError, flight.FlightUnavailableError),
    "exit": (SystemExit, flight.FlightInternalError),
    "interrupt": (KeyboardInterrupt, flight.FlightInternalError),
    "generator exit": (GeneratorExit, flight.FlightInternalError),
    "memory": (MemoryError, flight.FlightInternalError),
    "device": (DeviceError, flight.FlightServerError),
    "missing": (FileMissing, pa.ArrowKeyError),
    "arrow": (pa.ArrowInvalid, flight.FlightInternalError),
}
# After how many batches; beside these there are `summary` and `closing`, after all of them.
PLACES = {"opening": -1, "first": 0, "middle": 2, "last": BATCHES}


class FailingRequest(Request):
    """Fails as it is told. `shape` is of its batches: a generator, or an object with the methods that are needed."""

    type: ClassVar[str] = "failing"

    raises: str = ""
    place: str = "opening"
    shape: str = "generator"


def fail(request: FailingRequest, place: str) -> None:
    if request.place == place and request.raises:
        raise RAISED[request.raises][0]("secret text")


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int64())], schema=SCHEMA)


@dataclass
class Failing:
    request: FailingRequest
    given: int = 0

    def __iter__(self) -> Iterator[Batches]:
        return self

    def __next__(self) -> Batches:
        if self.given == PLACES.get(self.request.place):
            fail(self.request, self.request.place)
        if self.given == BATCHES:
            raise StopIteration
        self.given += 1
        return [batch(self.given)]

    def close(self) -> None:
        fail(self.request, "closing")


@dataclass
class AsyncFailing:
    batches: Failing

    def __aiter__(self) -> AsyncIterator[Batches]:
        return self

    async def __anext__(self) -> Batches:
        await asyncio.sleep(0)
        try:
            return next(self.batches)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.batches.close()


def generated(batches: Failing) -> Iterator[Batches]:
    try:
        yield from batches
    finally:
        batches.close()


async def agenerated(batches: Failing) -> AsyncIterator[Batches]:
    try:
        async for each in AsyncFailing(batches):
            yield each
    finally:
        await asyncio.sleep(0)
        batches.close()


def summary(request: FailingRequest) -> Summary:
    fail(request, "summary")
    return {}


def read(request: FailingRequest) -> Reading:
    fail(request, "opening")
    batches = Failing(request)
    given = batches if request.shape == "object" else generated(batches)
    return Reading(SCHEMA, given, lambda: summary(request))


async def aread(request: FailingRequest) -> Reading:
    fail(request, "opening")
    batches = Failing(request)
    given = AsyncFailing(batches) if request.shape == "object" else agenerated(batches)
    return Reading(SCHEMA, given, lambda: summary(request))


@pytest.fixture(scope="module")
def failing() -> Iterator[TrialServer]:
    with trial_server(trial=FunctionSource(FailingRequest, read=read, aread=aread)) as running:
        assert running.client.do_get(ticket(type="failing")).read_all().num_rows == BATCHES  # connects
        yield running


@pytest.mark.parametrize("raises", RAISED)
@pytest.mark.parametrize("place", [*PLACES, "summary", "closing"])
def test_a_typed_error_wherever_it_fails(failing: TrialServer, mode: str, raises: str, place: str) -> None:
    before = failing.stats()
    for shape in ("generator", "object"):
        asked = ticket(type="failing", raises=raises, place=place, shape=shape, mode=mode)
        rows = 0
        with pytest.raises(RAISED[raises][1]) as told:
            for chunk in failing.client.do_get(asked):
                rows += chunk.data.num_rows
        assert rows == (max(PLACES.get(place, BATCHES), 0))
        for leak in (
            "Traceback (most recent",
            ".py",
            "secret text" if not issubclass(RAISED[raises][0], FastFlightError) else "?",
        ):
            assert leak not in str(told.value)
        assert failing.settled()
    new = {name: failing.stats()[name] - before[name] for name in ("failed", "cancelled", "started")}
    assert new["failed"] + new["cancelled"] == new["started"] == 2
    assert failing.client.do_get(ticket(type="failing", mode=mode)).read_all().num_rows == BATCHES
