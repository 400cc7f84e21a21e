"""From a device source's generator of lots to the `Reading` that an edge takes.

`begin` and `abegin` advance the generator until the schema is known: by then errors before the first row have been
raised. What came meanwhile is the reading's first lot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Protocol

import pyarrow as pa

from fastflight.service.source import AsyncReading, Lot, Reading, Summary


class Rows(Protocol):
    """Where the rows come from: knows the schema at the latest when they have ended."""

    @property
    def schema(self) -> pa.Schema | None: ...

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
    return pa.schema([]) if rows.schema is None else rows.schema  # one without columns is false
