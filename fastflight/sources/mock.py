"""The benchmark table: rows of integers at a pace that the request sets.

`variant` names the columns: `default` is 50 of int32, `simple` four of them, `complex` a mix of types. A batch is made
once and given again, so that reading measures the server and the source's own pace (`delay_per_row`), nothing else.
What is written is counted and thrown away.

All batches of the table are slices of one: equal, and the last one shorter. Column i of the integers counts from i,
in each batch anew. A request for some of its rows gives what the table has there: where it begins within a batch, its
first batch is the rest of that one. A batch that is more than a message comes in pieces, so that what waits for a
client is counted as what it is.
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
    Estimate,
    Lot,
    Part,
    Parts,
    Progress,
    Reading,
    Source,
    Summary,
    Takes,
)
from fastflight.sources.pacer import BatchPacer

DEFAULT_COLUMNS = 50
SIMPLE_COLUMNS = 4
# Batches kept ready: the three variants at a few sizes. The largest is 20 MB.
MAX_KEPT_BATCHES = 8
MAX_KEPT_ROWS = 100_000
# Without a delay all of the table is there: so much of it is given at once.
LOT_BYTES = 512 * 1024
# The start of the `complex` variant's time column.
EPOCH = np.datetime64("2025-01-01", "us")


def read(request: Mock) -> Reading:
    """The table, in the asking thread."""
    shape = _shape(request)
    first = _at_once(request, shape)
    return Reading(shape.base.schema, NO_LOTS if first else _lots(request, shape), first=first)


async def aread(request: Mock) -> AsyncReading:
    """The table, on an event loop."""
    # A large batch is made for this request alone: up to a second, in which nothing else on the loop would go on.
    large = request.rows_per_batch > MAX_KEPT_ROWS
    shape = await off_loop(_shape, request) if large else _shape(request)
    first = _at_once(request, shape)
    return AsyncReading(shape.base.schema, NO_LOTS if first else _alots(request, shape), first=first)


def write(request: Mock, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge) -> Summary:
    """Count rows and bytes, throw them away."""
    progress = Progress(0, 0)
    for batch in batches:
        progress = _counted(progress, batch)
        acknowledge(progress)
    return {"rows": progress.rows, "bytes": progress.bytes}


async def awrite(
    request: Mock, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
) -> Summary:
    """The same on an event loop."""
    progress = Progress(0, 0)
    async for batch in batches:
        progress = _counted(progress, batch)
        acknowledge(progress)
    return {"rows": progress.rows, "bytes": progress.bytes}


def describe(request: Mock) -> Estimate:
    """Rows and bytes of the answer, exactly."""
    return Estimate(schema(request.variant), rows=request.total_rows, bytes=_nbytes(request), keep_seconds=math.inf)


def requests(takes: Takes) -> Iterator[tuple[Mock, Estimate]]:
    """The default table."""
    request = Mock()
    yield request, describe(request)


def parts(request: Mock, known: Estimate) -> Parts[Mock]:
    """The table in as many parts as are asked for, or as it has batches; each begins where a batch does."""
    per_batch = request.rows_per_batch
    first, end = request.first_row, request.first_row + request.total_rows
    begun = first // per_batch
    batches = -(-end // per_batch) - begun
    count = max(1, min(request.endpoints, batches))
    cuts = [first, *(per_batch * (begun + batches * number // count) for number in range(1, count)), end]
    requests = (
        request.model_copy(update={"first_row": start, "total_rows": stop - start, "endpoints": 1})
        for start, stop in pairwise(cuts)
    )
    return Parts([Part(part) for part in requests])


SOURCE = Source(
    Mock,
    read=read,
    aread=aread,
    write=write,
    awrite=awrite,
    describe=describe,
    requests=requests,
    parts=parts,
)


def schema(variant: str) -> pa.Schema:
    """The columns of a variant."""
    return batch(variant, 0).schema


def batch(variant: str, rows: int) -> pa.RecordBatch:
    """The first `rows` rows of a variant."""
    return _base(variant, rows).slice(0, rows) if rows > MAX_KEPT_ROWS else _kept(variant, rows)


# Those in use that are larger than what is kept. Of each variant there are four sizes, 510 MB in all, whoever asks.
_large: WeakValueDictionary[tuple[str, int], pa.RecordBatch] = WeakValueDictionary()
_making_large = threading.Lock()


def _base(variant: str, rows: int) -> pa.RecordBatch:
    """A batch that begins with `rows` rows of a variant. Who uses slices of a large one keeps it, for others, too."""
    if rows <= MAX_KEPT_ROWS:
        return _kept(variant, rows)
    size = min(1 << (rows - 1).bit_length(), MAX_BATCH_ROWS)
    with _making_large:
        found = _large.get((variant, size))
        if found is None:
            found = _large[variant, size] = _make(variant, size)
        return found


@functools.lru_cache(MAX_KEPT_BATCHES)
def _kept(variant: str, rows: int) -> pa.RecordBatch:
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
    """The batch that all are slices of, and of it, in pieces: the rest that comes first, one, how often, the last.

    Without a delay so many whole ones are given `together`.
    """

    base: pa.RecordBatch
    begun: list[pa.RecordBatch]
    full: list[pa.RecordBatch]
    whole: int
    rest: list[pa.RecordBatch]
    together: int


def _nbytes(request: Mock) -> int:
    shape = _shape(request)
    begun, full, rest = (sum(int(piece.nbytes) for piece in pieces) for pieces in (shape.begun, shape.full, shape.rest))
    return begun + shape.whole * full + rest


def _planned(request: Mock, shape: Shape) -> Iterator[list[pa.RecordBatch]]:
    """What is given at once: a batch in its pieces, or several batches where there is no delay."""
    together = 1 if request.delay_per_row else shape.together
    lots, more = divmod(shape.whole, together)
    if shape.begun:
        yield shape.begun
    lot = shape.full * together
    for _ in range(lots):
        yield lot
    if more:
        yield shape.full * more
    if shape.rest:
        yield shape.rest


def _at_once(request: Mock, shape: Shape) -> Lot:
    """The whole table, if it is one batch that nothing delays; else nothing."""
    batches = bool(shape.begun) + shape.whole + bool(shape.rest)
    return next(_planned(request, shape)) if batches == 1 and not request.delay_per_row else []


def _shape(request: Mock) -> Shape:
    make = _made if request.rows_per_batch > MAX_KEPT_ROWS else _kept_shape
    return make(request.variant, request.rows_per_batch, request.first_row, request.total_rows)


@functools.lru_cache(MAX_KEPT_BATCHES)
def _kept_shape(variant: str, per_batch: int, first_row: int, total_rows: int) -> Shape:
    return _made(variant, per_batch, first_row, total_rows)


def _made(variant: str, per_batch: int, first_row: int, total_rows: int) -> Shape:
    offset = first_row % per_batch
    before = min(per_batch - offset, total_rows) if offset else 0
    whole, after = divmod(total_rows - before, per_batch)
    base = _base(variant, per_batch if whole else max(offset + before, after))
    full = _cut(base, 0, per_batch if whole else 0)
    together = max(1, LOT_BYTES // sum(int(piece.nbytes) for piece in full)) if full else 1
    return Shape(base, _cut(base, offset, before), full, whole, _cut(base, 0, after), together)


def _cut(base: pa.RecordBatch, start: int, rows: int) -> list[pa.RecordBatch]:
    """A slice of the base in pieces of a message; none of no rows."""
    if not rows:
        return []
    return list(split(base if rows == base.num_rows else base.slice(start, rows)))


def _lots(request: Mock, shape: Shape) -> Iterator[Lot]:
    pacer = BatchPacer()
    for lot in _planned(request, shape):
        if request.delay_per_row:
            time.sleep(pacer.begin(_rows(lot) * request.delay_per_row))
            pacer.end()
        yield lot


async def _alots(request: Mock, shape: Shape) -> AsyncIterator[Lot]:
    pacer = BatchPacer()
    for lot in _planned(request, shape):
        if request.delay_per_row:
            await asyncio.sleep(pacer.begin(_rows(lot) * request.delay_per_row))
            pacer.end()
        yield lot


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _counted(progress: Progress, batch: pa.RecordBatch) -> Progress:
    return Progress(progress.rows + batch.num_rows, progress.bytes + batch.nbytes)
