"""Turns a source's generator of lots into the answer that the edges use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from dataclasses import fields
from typing import Any, Protocol

import pyarrow as pa

from fastflight.concurrency.blocking import Blocking, NonBlocking, finish
from fastflight.service.source import AsyncReading, Lot, Reading, Summary


class Rows(Protocol):
    """The object that makes the rows of a reading."""

    @property
    def schema(self) -> pa.Schema | None:
        """None until it is known; an answer that ends without one has no columns."""

    def summary(self) -> Summary: ...


async def abegin(rows: Rows, lots: AsyncGenerator[Lot, None] | NonBlocking[Lot]) -> AsyncReading:
    """Advance `lots` until the schema of `rows` is known, so that errors before the first row are raised here.

    What came until then is the first lot of the answer. Closes `lots` if that fails.
    """
    first: Lot = []
    try:
        async for lot in lots:
            first += lot
            if rows.schema is not None:
                break
        return AsyncReading(_schema(rows), lots, rows.summary, first=first)
    except BaseException:
        await lots.aclose()
        raise


def begin(rows: Rows, lots: Generator[Lot, None, None]) -> Reading:
    """As `abegin`, for an answer that is read in threads."""
    return in_thread(finish(abegin(rows, NonBlocking(lots))))


def in_thread(reading: AsyncReading) -> Reading:
    """Return an answer whose lots never suspend, to be read in threads."""
    changed = {} if reading.is_whole else {"lots": Blocking(reading.lots)}
    return Reading(**_fields(reading) | changed)


def awaitable(reading: Reading) -> AsyncReading:
    """Return an answer whose lots are read in this thread, for code that awaits them."""
    changed = {} if reading.is_whole else {"lots": NonBlocking(reading.lots)}
    return AsyncReading(**_fields(reading) | changed)


def _fields(reading: Reading | AsyncReading) -> dict[str, Any]:
    return {field.name: getattr(reading, field.name) for field in fields(reading)}


def _schema(rows: Rows) -> pa.Schema:
    return pa.schema([]) if rows.schema is None else rows.schema  # not `or`: a schema without columns is falsy
