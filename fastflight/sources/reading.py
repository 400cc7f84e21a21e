"""Turns a source's generator of lots into the `Reading` that the edges use.

`begin` and `abegin` advance the generator until the schema is known, so that errors before the first row are raised
here. The lots that came until then are the first lot of the reading.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Protocol

import pyarrow as pa

from fastflight.service.source import AsyncReading, Lot, Reading, Summary


class Rows(Protocol):
    """The object that makes the rows of a reading."""

    @property
    def schema(self) -> pa.Schema | None:
        """None until it is known; an answer that ends without one has no columns."""

    def summary(self) -> Summary: ...


def begin(rows: Rows, lots: Generator[Lot, None, None]) -> Reading:
    """Advance `lots` until the schema of `rows` is known. Closes `lots` if that fails."""
    first: Lot = []
    try:
        for lot in lots:
            first += lot
            if rows.schema is not None:
                break
        return Reading(_schema(rows), lots, rows.summary, first=first)
    except BaseException:
        lots.close()
        raise


async def abegin(rows: Rows, lots: AsyncGenerator[Lot, None]) -> AsyncReading:
    """As `begin`, on an event loop."""
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


def _schema(rows: Rows) -> pa.Schema:
    return pa.schema([]) if rows.schema is None else rows.schema  # not `or`: a schema without columns is falsy
