"""The benchmark table: rows of integers at a pace that the request sets.

`variant` names the columns: `default` is 50 of int32, `simple` four of them, `complex` a mix of types. A batch is made
once and given again, so that reading measures the server and the source's own pace (`delay_per_row`), nothing else.
What is written is counted and thrown away.

All batches of the table are slices of one: equal, and the last one shorter. Column i of the integers counts from i,
in each batch anew. A request for some of its rows gives what the table has there: where it begins within a batch, its
first batch is the rest of that one.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fastflight.concurrency import off_loop
from fastflight.service.requests import Mock
from fastflight.service.source import (
    Acknowledge,
    AsyncReading,
    Estimate,
    Part,
    Parts,
    Progress,
    Reading,
    Source,
    Summary,
    Takes,
)
from fastflight.sources.pacer import Pacer

DEFAULT_COLUMNS = 50
SIMPLE_COLUMNS = 4
# Batches kept ready: the three variants at a few sizes. The largest is 20 MB; larger ones are made for each request.
MAX_KEPT_BATCHES = 8
MAX_KEPT_ROWS = 100_000
# A larger table is a benchmark of reading it.
MAX_CONSTANT_ROWS = 1000
# The start of the `complex` variant's time column.
EPOCH = np.datetime64("2025-01-01", "us")


def read(request: Mock) -> Reading:
    """The table, in the asking thread."""
    return Reading(schema(request.variant), _batches(request, _shape(request)), ready=not request.delay_per_row)


async def aread(request: Mock) -> AsyncReading:
    """The table, on an event loop."""
    # A large batch is made for this request alone: up to a second, in which nothing else on the loop would go on.
    large = request.rows_per_batch > MAX_KEPT_ROWS
    shape = await off_loop(_shape, request) if large else _shape(request)
    return AsyncReading(schema(request.variant), _abatches(request, shape))


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


def constant(request: Mock) -> bool:
    """Whether the answer may be kept: it is small, and its pace is not asked for."""
    return not request.delay_per_row and request.total_rows <= MAX_CONSTANT_ROWS


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
    constant=constant,
)


def schema(variant: str) -> pa.Schema:
    """The columns of a variant."""
    return batch(variant, 0).schema


def batch(variant: str, rows: int) -> pa.RecordBatch:
    """The first `rows` rows of a variant."""
    return _kept(variant, rows) if rows <= MAX_KEPT_ROWS else _make(variant, rows)


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


# The batch that all are slices of, the rest of it that comes first, how often it comes whole, and the last.
Shape: TypeAlias = tuple[pa.RecordBatch, pa.RecordBatch | None, int, pa.RecordBatch | None]


def _nbytes(request: Mock) -> int:
    full, begun, whole, rest = _shape(request)
    return sum(int(part.nbytes) for part in (begun, rest) if part is not None) + whole * int(full.nbytes)


def _planned(shape: Shape) -> Iterator[pa.RecordBatch]:
    """The batches, all slices of one."""
    full, begun, whole, rest = shape
    if begun is not None:
        yield begun
    for _ in range(whole):
        yield full
    if rest is not None:
        yield rest


def _shape(request: Mock) -> Shape:
    per_batch = request.rows_per_batch
    offset = request.first_row % per_batch
    before = min(per_batch - offset, request.total_rows) if offset else 0
    whole, after = divmod(request.total_rows - before, per_batch)
    full = batch(request.variant, per_batch if whole else max(offset + before, after))
    return full, full.slice(offset, before) if before else None, whole, full.slice(0, after) if after else None


def _batches(request: Mock, shape: Shape) -> Iterator[pa.RecordBatch]:
    pacer = Pacer()
    for planned in _planned(shape):
        if request.delay_per_row:
            time.sleep(pacer.begin(planned.num_rows * request.delay_per_row))
            pacer.end()
        yield planned


async def _abatches(request: Mock, shape: Shape) -> AsyncIterator[pa.RecordBatch]:
    pacer = Pacer()
    for planned in _planned(shape):
        if request.delay_per_row:
            await asyncio.sleep(pacer.begin(planned.num_rows * request.delay_per_row))
            pacer.end()
        yield planned


def _counted(progress: Progress, batch: pa.RecordBatch) -> Progress:
    return Progress(progress.rows + batch.num_rows, progress.bytes + batch.nbytes)
