"""Answers that do not change: made once, given again.

How long a description stays true, its source says with it (`Estimate.keep_seconds`); whether the rows of a request are
always the same, `Source.constant`. Where they are and the whole answer is small, its messages are kept as they went out
the first time. Such an answer is admitted, counted and cancelled as every other. `fastflight.path` is the path that
made it; its trailer, which goes with the last rows, says `"kept": true`, and how long this answer took.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.errors import FastFlightError, Stopped
from fastflight.server import listing
from fastflight.server.answers import Message, Opened
from fastflight.server.status import flight_error
from fastflight.service import Catalog
from fastflight.service.kept import Asked, Asking, Kept
from fastflight.service.source import Estimate
from fastflight.service.stream import Stream

# Admits a call on a device, for the length of the context.
Calling = Callable[[str | None], AbstractContextManager[None]]
# What who asks may have of what they ask; raises what they are refused with.
Allowing = Callable[[Asked], Asked]

# Descriptions, and answers.
MAX_KEPT = 512
# A description is a schema and a few endpoints: some kilobytes. One of a thousand endpoints, or asked for in a quarter
# of a megabyte of blanks, is made each time.
MAX_KEPT_DESCRIPTION_BYTES = 64 * 1024
# One small message; with `MAX_KEPT` of them it is 32 MiB at most.
MAX_KEPT_ANSWER_BYTES = 64 * 1024


class Descriptions:
    """get_flight_info and get_schema, by the bytes of their descriptors."""

    def __init__(self, catalog: Catalog, asking: Asking) -> None:
        self._catalog = catalog
        self._asking = asking
        self._infos: Kept[flight.FlightInfo] = Kept(MAX_KEPT)
        self._schemas: Kept[flight.SchemaResult] = Kept(MAX_KEPT)

    def info(self, descriptor: flight.FlightDescriptor, call: Calling, allow: Allowing | None) -> flight.FlightInfo:
        """The flight that a descriptor means. Where its source has to be asked, that is done inside a `call`.

        `allow`, of those that may not everything, gives what they may have of a request, before anything is told of it.
        """
        key = _key(descriptor)
        asked = None if allow is None else allow(listing.asked_of(descriptor, self._asking))
        narrowed = asked is not None and asked.narrowed
        info = None if narrowed else self._infos.get(key)
        if info is None:
            asked = asked or listing.asked_of(descriptor, self._asking)
            request = asked.request
            with call(asked.device):
                known = listing.estimate(request, self._catalog)
            info = listing.info(request, known, self._catalog, descriptor)
            if not narrowed and _is_small(descriptor, info, known):
                self._infos.put(key, info, known.keep_seconds)
        return info

    def schema(self, descriptor: flight.FlightDescriptor, call: Calling, allow: Allowing | None) -> flight.SchemaResult:
        """The columns of the answer that a descriptor means, likewise."""
        key = _key(descriptor)
        asked = None if allow is None else allow(listing.asked_of(descriptor, self._asking))
        narrowed = asked is not None and asked.narrowed
        schema = None if narrowed else self._schemas.get(key)
        if schema is None:
            asked = asked or listing.asked_of(descriptor, self._asking)
            request = asked.request
            with call(asked.device):
                known = listing.estimate(request, self._catalog)
            schema = flight.SchemaResult(listing.schema(request, known))
            if not narrowed and _is_small(descriptor, schema, known):
                self._schemas.put(key, schema, known.keep_seconds)
        return schema


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its batches, of which the last goes with the trailer: JSON but for the duration and its brace."""

    schema: pa.Schema
    first: tuple[pa.RecordBatch, ...]
    last: pa.RecordBatch
    told: bytes
    rows: int
    size: int


class Answers:
    """The answers that are kept, by ticket."""

    def __init__(self) -> None:
        self._kept: Kept[Answer] = Kept(MAX_KEPT)

    def get(self, asked: Asked) -> Answer | None:
        """The answer, if it is kept."""
        return None if asked.narrowed else self._kept.get(asked.ticket)

    def keeping(self, asked: Asked, opened: Opened) -> Opened:
        """`opened`, as it is; its messages are kept on their way if they are to be the same for ever, and few."""
        constant = asked.source.constant
        if constant is None or asked.narrowed or not constant(asked.request):
            return opened
        schema, messages = opened
        passing = self._passing(asked.ticket, schema, messages)
        next(passing)  # from here on, dropping it closes what it passes on
        return schema, passing

    def _passing(
        self, ticket: bytes, schema: pa.Schema, messages: Generator[Message, None, None]
    ) -> Generator[Message, None, None]:
        batches: list[pa.RecordBatch] = []
        told: bytes | None = None
        size = 0
        try:
            yield None
            for message in messages:
                if isinstance(message, pa.RecordBatchReader):
                    # One by one while they may be kept; the rest of them need not come by here.
                    for batch in message if size <= MAX_KEPT_ANSWER_BYTES else ():
                        size += batch.nbytes
                        batches.append(batch)
                        yield batch
                        if size > MAX_KEPT_ANSWER_BYTES:
                            break
                    if size > MAX_KEPT_ANSWER_BYTES:
                        batches.clear()
                        yield message
                    continue
                batch, told = (message[0], message[1].to_pybytes()) if isinstance(message, tuple) else (message, None)
                size += batch.nbytes
                if size <= MAX_KEPT_ANSWER_BYTES:
                    batches.append(batch)
                yield message
            if told is not None and size <= MAX_KEPT_ANSWER_BYTES:
                self._kept.put(ticket, _answer(schema, batches, json.loads(told)), math.inf)
        finally:
            messages.close()


def again(answer: Answer, stream: Stream) -> flight.FlightDataStream:
    """The kept answer, sent once more."""
    messages = _again(answer, stream)
    next(messages)  # from here on, dropping it closes the stream
    return flight.GeneratorStream(answer.schema, messages)


def _again(answer: Answer, stream: Stream) -> Generator[Message, None, None]:
    outcome = "cancelled"
    try:
        yield None
        for batch in answer.first:
            stream.offered = time.monotonic()
            yield batch
            stream.passing()
        if stream.why_stop:
            stream.check()
        stream.count(answer.rows, answer.size)
        took = time.perf_counter() - stream.began
        stream.offered = time.monotonic()
        yield answer.last, pa.py_buffer(b'%s, "duration_seconds": %.6f}' % (answer.told, took))
        outcome = "finished"
    except FastFlightError as error:
        outcome = "cancelled" if isinstance(error, Stopped) else "failed"
        raise flight_error(error) from None
    finally:
        stream.offered = 0.0
        stream.close(outcome)


def _answer(schema: pa.Schema, batches: list[pa.RecordBatch], told: dict[str, object]) -> Answer:
    del told["duration_seconds"]
    # The last one is the trailer's, without rows: it goes with those before it, if there are any.
    sent = tuple(batches[:-1]) or tuple(batches)
    trailer = json.dumps({**told, "kept": True}).encode().removesuffix(b"}")
    # Of the very schema of the stream: another object Arrow compares with it at each sending, metadata and all.
    sent = tuple(pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in sent)
    rows, size = sum(batch.num_rows for batch in sent), sum(batch.nbytes for batch in sent)
    return Answer(schema, sent[:-1], sent[-1], trailer, rows, size)


def _is_small(
    descriptor: flight.FlightDescriptor, described: flight.FlightInfo | flight.SchemaResult, known: Estimate
) -> bool:
    """Whether it may be kept: it is not to be at all, or it and what it is known by are small."""
    if not known.keep_seconds:
        return True
    return len(descriptor.serialize()) + len(described.serialize()) <= MAX_KEPT_DESCRIPTION_BYTES


def _key(descriptor: flight.FlightDescriptor) -> Hashable:
    command: bytes | None = descriptor.command
    return tuple(descriptor.path or ()) if command is None else command
