"""The benchmark table: rows of integers at a pace that the request sets.

`variant` names the columns: `default` is 50 of int32, `simple` four of them, `complex` a mix of types. A batch is made
once and given again, so that reading measures the server and the source's own pace (`delay_per_row`), nothing else.
What is written is counted and thrown away.

All batches of a stream are slices of one: equal, and the last one shorter. Column i of the integers counts from i.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pyarrow as pa

from fastflight.service.requests import Mock
from fastflight.service.source import Acknowledge, AsyncReading, Estimate, Progress, Reading, Source, Summary
from fastflight.sources.pacer import Pacer

DEFAULT_COLUMNS = 50
SIMPLE_COLUMNS = 4
# Batches kept ready: the three variants at a few sizes. The largest is 20 MB; larger ones are made for each request.
MAX_KEPT_BATCHES = 8
MAX_KEPT_ROWS = 100_000
# The start of the `complex` variant's time column.
EPOCH = np.datetime64("2025-01-01", "us")


def read(request: Mock) -> Reading:
    """The table, in the asking thread."""
    return Reading(schema(request.variant), _batches(request))


async def aread(request: Mock) -> AsyncReading:
    """The table, on an event loop."""
    return AsyncReading(schema(request.variant), _abatches(request))


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
    return Estimate(schema(request.variant), rows=request.total_rows, bytes=_nbytes(request))


def requests() -> Iterator[tuple[Mock, Estimate]]:
    """The default table."""
    request = Mock()
    yield request, describe(request)


SOURCE = Source(Mock, read=read, aread=aread, write=write, awrite=awrite, describe=describe, requests=requests)


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


def _nbytes(request: Mock) -> int:
    whole, rest = divmod(request.total_rows, request.rows_per_batch)
    if not whole:
        return int(batch(request.variant, rest).nbytes)
    full = batch(request.variant, request.rows_per_batch)
    return int(whole * full.nbytes + full.slice(0, rest).nbytes)


def _planned(request: Mock) -> Iterator[pa.RecordBatch]:
    """The batches, all slices of one."""
    whole, rest = divmod(request.total_rows, request.rows_per_batch)
    full = batch(request.variant, request.rows_per_batch if whole else rest)
    for _ in range(whole):
        yield full
    if rest:
        yield full.slice(0, rest)


def _batches(request: Mock) -> Iterator[pa.RecordBatch]:
    pacer = Pacer()
    for planned in _planned(request):
        if request.delay_per_row:
            time.sleep(pacer.begin(planned.num_rows * request.delay_per_row))
            pacer.end()
        yield planned


async def _abatches(request: Mock) -> AsyncIterator[pa.RecordBatch]:
    pacer = Pacer()
    for planned in _planned(request):
        if request.delay_per_row:
            await asyncio.sleep(pacer.begin(planned.num_rows * request.delay_per_row))
            pacer.end()
        else:
            await asyncio.sleep(0)
        yield planned


def _counted(progress: Progress, batch: pa.RecordBatch) -> Progress:
    return Progress(progress.rows + batch.num_rows, progress.bytes + batch.nbytes)
