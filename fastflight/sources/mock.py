"""`mock`: a table of generated rows for benchmarks and tests, sent at a pace that the request sets.

`variant` names the columns: `default` has 50 of int32, `simple` four of them, `complex` a mix of types. A batch is made
once and sent again and again, so that reading measures the server and the requested pace (`delay_per_row`) only. Rows
that are written are counted and thrown away.

All batches have the same rows; the last one may be shorter. Integer column i counts up from i, and starts again in each
batch. A request for a range of rows (`first_row`) that begins within a batch first gets the rest of that batch. A batch
larger than one message is cut into several, so that the bytes that wait for the client are counted correctly.
"""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from fastflight.concurrency import off_loop
from fastflight.runtime.outgoing import split
from fastflight.service.requests import MAX_BATCH_ROWS, Mock
from fastflight.service.source import (
    NO_LOTS,
    Acknowledge,
    AsyncReading,
    DataSource,
    Estimate,
    Lot,
    Part,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
)
from fastflight.sources.pacer import BatchPacer

DEFAULT_COLUMNS = 50
SIMPLE_COLUMNS = 4
# Cached batches: the three variants at a few sizes. The largest is 20 MB.
MAX_CACHED_BATCHES = 8
MAX_CACHED_ROWS = 100_000
# The size of a lot if the request has no delay.
LOT_BYTES = 512 * 1024
# The start of the `complex` variant's time column.
EPOCH = np.datetime64("2025-01-01", "us")


def read(request: Mock) -> Reading:
    """Return the table, to be iterated in the caller's thread."""
    shape = _shape(request)
    first = _single_lot(request, shape)
    return Reading(shape.base.schema, NO_LOTS if first else _lots(request, shape), first=first)


async def aread(request: Mock) -> AsyncReading:
    """Return the table, to be iterated on an event loop."""
    # Making a large batch takes up to a second, which would block the loop.
    large = request.rows_per_batch > MAX_CACHED_ROWS
    shape = await off_loop(_shape, request) if large else _shape(request)
    first = _single_lot(request, shape)
    return AsyncReading(shape.base.schema, NO_LOTS if first else _alots(request, shape), first=first)


def write(request: Mock, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge) -> Summary:
    """Count the rows and bytes, and throw them away."""
    progress = Progress(0, 0)
    for batch in batches:
        progress = _add(progress, batch)
        acknowledge(progress)
    return {"rows": progress.rows, "bytes": progress.bytes}


async def awrite(
    request: Mock, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
) -> Summary:
    """As `write`, on an event loop."""
    progress = Progress(0, 0)
    async for batch in batches:
        progress = _add(progress, batch)
        acknowledge(progress)
    return {"rows": progress.rows, "bytes": progress.bytes}


def describe(request: Mock) -> Estimate:
    """Return the schema, and the exact number of rows and bytes of the answer."""
    return Estimate(schema(request.variant), rows=request.total_rows, bytes=_nbytes(request), keep_seconds=math.inf)


def requests(takes: Takes) -> Iterator[tuple[Mock, Estimate]]:
    """Yield the request for the default table, which always exists."""
    request = Mock()
    yield request, describe(request)


def parts(request: Mock, known: Estimate) -> Parts[Mock]:
    """Divide the table into the requested number of `endpoints`, at most one per batch, cut between batches."""
    per_batch = request.rows_per_batch
    first, end = request.first_row, request.first_row + request.total_rows
    first_batch = first // per_batch
    batches = -(-end // per_batch) - first_batch
    count = max(1, min(request.endpoints, batches))
    cuts = [first, *(per_batch * (first_batch + batches * number // count) for number in range(1, count)), end]
    requests = (
        request.model_copy(update={"first_row": start, "total_rows": stop - start, "endpoints": 1})
        for start, stop in pairwise(cuts)
    )
    return Parts([Part(part) for part in requests])


class MockTable(DataSource[Mock]):
    """The source of `mock` requests."""

    request = Mock
    read = staticmethod(read)
    aread = staticmethod(aread)
    write = staticmethod(write)
    awrite = staticmethod(awrite)
    describe = staticmethod(describe)
    requests = staticmethod(requests)
    parts = staticmethod(parts)


SOURCE = MockTable()


def schema(variant: str) -> pa.Schema:
    """Return the schema of a variant."""
    return batch(variant, 0).schema


def batch(variant: str, rows: int) -> pa.RecordBatch:
    """Return the first `rows` rows of a variant."""
    return _base(variant, rows).slice(0, rows) if rows > MAX_CACHED_ROWS else _cached(variant, rows)


# Large batches that are in use. Each variant has four sizes, 510 MB in all, however many clients read them.
_large: WeakValueDictionary[tuple[str, int], pa.RecordBatch] = WeakValueDictionary()
_making_large = threading.Lock()


def _base(variant: str, rows: int) -> pa.RecordBatch:
    """Return a batch that begins with the first `rows` rows of a variant.

    A large one is shared by all that use it or slices of it, and freed when nobody does.
    """
    if rows <= MAX_CACHED_ROWS:
        return _cached(variant, rows)
    size = min(1 << (rows - 1).bit_length(), MAX_BATCH_ROWS)
    with _making_large:
        found = _large.get((variant, size))
        if found is None:
            found = _large[variant, size] = _make(variant, size)
        return found


@functools.lru_cache(MAX_CACHED_BATCHES)
def _cached(variant: str, rows: int) -> pa.RecordBatch:
    return _make(variant, rows)


def _make(variant: str, rows: int) -> pa.RecordBatch:
    numbers = np.arange(rows, dtype=np.int32)
    if variant != "complex":
        columns = DEFAULT_COLUMNS if variant == "default" else SIMPLE_COLUMNS
        return pa.record_batch({f"col_{i}": pa.array(numbers + np.int32(i)) for i in range(columns)})
    seconds = EPOCH + numbers * np.timedelta64(1, "s")
    offsets = np.arange(0, 2 * rows + 1, 2, dtype=np.int32)
    return pa.record_batch(
        {
            "id": pa.array(numbers.astype(np.int64)),
            "value": pa.array(numbers / 10),
            "name": pa.array([f"row {number}" for number in range(rows)], pa.string()),
            "time": pa.array(seconds, pa.timestamp("us", tz="UTC")),
            "valid": pa.array(numbers % 2 == 0),
            "samples": pa.ListArray.from_arrays(offsets, np.arange(2 * rows, dtype=np.int32)),
        }
    )


class Shape(NamedTuple):
    """The batches of an answer. All are slices of `base`, each as a list of pieces that fit into a message.

    `head` is the end of a batch, if the answer begins within one. Then `full`, a whole batch, is sent `full_count`
    times. `tail` is the shorter last batch. Without a delay, `full_per_lot` whole batches make a lot.
    """

    base: pa.RecordBatch
    head: list[pa.RecordBatch]
    full: list[pa.RecordBatch]
    full_count: int
    tail: list[pa.RecordBatch]
    full_per_lot: int


def _nbytes(request: Mock) -> int:
    shape = _shape(request)
    head, full, tail = (sum(int(piece.nbytes) for piece in pieces) for pieces in (shape.head, shape.full, shape.tail))
    return head + shape.full_count * full + tail


def _plan_lots(request: Mock, shape: Shape) -> Iterator[list[pa.RecordBatch]]:
    """Yield the lots of the answer: one batch each, or several whole batches if there is no delay."""
    full_per_lot = 1 if request.delay_per_row else shape.full_per_lot
    lots, remainder = divmod(shape.full_count, full_per_lot)
    if shape.head:
        yield shape.head
    lot = shape.full * full_per_lot
    for _ in range(lots):
        yield lot
    if remainder:
        yield shape.full * remainder
    if shape.tail:
        yield shape.tail


def _single_lot(request: Mock, shape: Shape) -> Lot:
    """Return the whole answer if it is a single batch without a delay; otherwise nothing."""
    batches = bool(shape.head) + shape.full_count + bool(shape.tail)
    return next(_plan_lots(request, shape)) if batches == 1 and not request.delay_per_row else []


def _shape(request: Mock) -> Shape:
    make = _make_shape if request.rows_per_batch > MAX_CACHED_ROWS else _cached_shape
    return make(request.variant, request.rows_per_batch, request.first_row, request.total_rows)


@functools.lru_cache(MAX_CACHED_BATCHES)
def _cached_shape(variant: str, per_batch: int, first_row: int, total_rows: int) -> Shape:
    return _make_shape(variant, per_batch, first_row, total_rows)


def _make_shape(variant: str, per_batch: int, first_row: int, total_rows: int) -> Shape:
    offset = first_row % per_batch
    head_rows = min(per_batch - offset, total_rows) if offset else 0
    full_count, tail_rows = divmod(total_rows - head_rows, per_batch)
    base = _base(variant, per_batch if full_count else max(offset + head_rows, tail_rows))
    full = _cut(base, 0, per_batch if full_count else 0)
    full_per_lot = max(1, LOT_BYTES // sum(int(piece.nbytes) for piece in full)) if full else 1
    return Shape(base, _cut(base, offset, head_rows), full, full_count, _cut(base, 0, tail_rows), full_per_lot)


def _cut(base: pa.RecordBatch, start: int, rows: int) -> list[pa.RecordBatch]:
    """Return a slice of `base` in pieces that fit into a message; an empty list for no rows."""
    if not rows:
        return []
    return list(split(base if rows == base.num_rows else base.slice(start, rows)))


def _lots(request: Mock, shape: Shape) -> Iterator[Lot]:
    pacer = BatchPacer()
    for lot in _plan_lots(request, shape):
        if request.delay_per_row:
            time.sleep(pacer.begin(_rows(lot) * request.delay_per_row))
            pacer.end()
        yield lot


async def _alots(request: Mock, shape: Shape) -> AsyncIterator[Lot]:
    pacer = BatchPacer()
    for lot in _plan_lots(request, shape):
        if request.delay_per_row:
            await asyncio.sleep(pacer.begin(_rows(lot) * request.delay_per_row))
            pacer.end()
        yield lot


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _add(progress: Progress, batch: pa.RecordBatch) -> Progress:
    return Progress(progress.rows + batch.num_rows, progress.bytes + batch.nbytes)
