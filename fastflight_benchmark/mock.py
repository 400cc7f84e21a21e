"""The source `mock`: a table of generated rows, sent at a pace that the request sets.

`fastflight serve --source fastflight_benchmark.mock:SOURCE` serves it. `variant` names the columns: `default` has 50 of
int32, `simple` four of them, `complex` a mix of types. A batch is sent again and again, so that reading measures the
server and the requested pace (`delay_per_row`) only. Rows that are written are counted and thrown away.

All batches have the same rows; the last one may be shorter. Integer column i counts up from i, and starts again in each
batch. A request for a range of rows (`first_row`) that begins within a batch first gets the rest of that batch. A batch
larger than one message comes in several.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from fastflight.service.requests import MAX_ENDPOINTS, BatchRows, Demands, Request
from fastflight.service.source import (
    Acknowledge,
    Batches,
    DataSource,
    Estimate,
    Part,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
)
from fastflight_benchmark.pacer import BatchPacer

DEFAULT_COLUMNS = 50
SIMPLE_COLUMNS = 4
# Rows of one message: of all variants, these take less than `outgoing.MAX_MESSAGE_BYTES`.
MESSAGE_ROWS = 10_000
# Messages that are kept, of 2 MB at most.
MAX_CACHED_MESSAGES = 64
# Rows that are ready together if the request has no delay: about half a megabyte of the default table.
READY_ROWS = 2_500
# The start of the `complex` variant's time column.
EPOCH = np.datetime64("2025-01-01", "us")
# The table repeats a few batches; this many rows of the default table are 200 GB.
MAX_ROWS = 1_000_000_000


class Mock(Request):
    """Reads a table of `total_rows` rows, or writes rows, which are counted and thrown away.

    `variant` selects the columns: 50 of int32 (`default`), four of int32 (`simple`), or mixed types (`complex`). With
    `first_row`, the answer begins at that row of the whole table. get_flight_info divides the table into up to
    `endpoints` parts, between batches.
    """

    type: ClassVar[str] = "mock"
    demands: ClassVar[Demands] = {"read": None, "write": None}

    rows_per_batch: BatchRows = 10_000
    # Seconds that the source waits for each row.
    delay_per_row: Annotated[float, Field(ge=0, le=1)] = 0.0
    variant: Literal["default", "simple", "complex"] = "default"
    total_rows: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 1_000_000
    first_row: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0
    endpoints: Annotated[int, Field(ge=1, le=MAX_ENDPOINTS)] = 1


class MockTable(DataSource[Mock]):
    """The source of `mock` requests."""

    request = Mock

    def read(self, request: Mock) -> Reading:
        first = _single_message(request)
        return Reading(schema(request.variant), None if first else _batches(request), first=first)

    async def aread(self, request: Mock) -> Reading:
        first = _single_message(request)
        return Reading(schema(request.variant), None if first else _abatches(request), first=first)

    def write(
        self, request: Mock, schema: pa.Schema, batches: Iterable[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        """Count the rows and bytes, and throw them away."""
        rows = size = 0
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            acknowledge(Progress(rows, size))
        return {"rows": rows, "bytes": size}

    def describe(self, request: Mock) -> Estimate:
        """Return the schema, and the exact number of rows and bytes of the answer."""
        return Estimate(schema(request.variant), rows=request.total_rows, bytes=_expected_bytes(request))

    def requests(self, takes: Takes) -> Iterator[tuple[Mock, Estimate]]:
        """Yield the request for the default table, which always exists."""
        request = Mock()
        yield request, self.describe(request)

    def parts(self, request: Mock, known: Estimate) -> Parts[Mock]:
        """Divide the table into the requested number of `endpoints`, at most one per batch, cut between batches."""
        if request.endpoints == 1:
            return super().parts(request, known)
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


SOURCE = MockTable()


def schema(variant: str) -> pa.Schema:
    """Return the schema of a variant."""
    return batch(variant, 0).schema


def batch(variant: str, rows: int) -> pa.RecordBatch:
    """Return the first `rows` rows of a variant."""
    return _message(variant, 0, rows)


@functools.lru_cache(MAX_CACHED_MESSAGES)
def _message(variant: str, start: int, stop: int) -> pa.RecordBatch:
    """Return some rows of a batch."""
    numbers = np.arange(start, stop, dtype=np.int32)
    if variant != "complex":
        columns = DEFAULT_COLUMNS if variant == "default" else SIMPLE_COLUMNS
        return pa.record_batch({f"col_{i}": pa.array(numbers + np.int32(i)) for i in range(columns)})
    seconds = EPOCH + numbers * np.timedelta64(1, "s")
    ends = np.arange(0, 2 * len(numbers) + 1, 2, dtype=np.int32)
    return pa.record_batch(
        {
            "id": pa.array(numbers.astype(np.int64)),
            "value": pa.array(numbers / 10),
            "name": pa.array([f"row {number}" for number in numbers], pa.string()),
            "time": pa.array(seconds, pa.timestamp("us", tz="UTC")),
            "valid": pa.array(numbers % 2 == 0),
            "samples": pa.ListArray.from_arrays(ends, np.arange(2 * start, 2 * stop, dtype=np.int32)),
        }
    )


def _messages(request: Mock) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the answer, cut into messages."""
    row, end = request.first_row, request.first_row + request.total_rows
    while row < end:
        start = row % request.rows_per_batch
        rows = min(request.rows_per_batch - start, MESSAGE_ROWS, end - row)
        yield _message(request.variant, start, start + rows)
        row += rows


@functools.lru_cache(1024)
def _nbytes(variant: str, start: int, stop: int) -> int:
    """Return the size of some rows of a batch, in messages."""
    edges = [*range(start, stop, MESSAGE_ROWS), stop]
    return sum(int(_message(variant, first, end).nbytes) for first, end in pairwise(edges))


def _expected_bytes(request: Mock) -> int:
    per_batch, start = request.rows_per_batch, request.first_row % request.rows_per_batch
    head = min(-request.first_row % per_batch, request.total_rows)
    count, tail = divmod(request.total_rows - head, per_batch)
    size = functools.partial(_nbytes, request.variant)
    return size(start, start + head) + (count and count * size(0, per_batch)) + size(0, tail)


def _ready(request: Mock) -> Iterator[list[pa.RecordBatch]]:
    """Yield the messages that are ready together: one, or several small ones if there is no delay."""
    ready: list[pa.RecordBatch] = []
    rows = 0
    for message in _messages(request):
        ready.append(message)
        rows += message.num_rows
        if request.delay_per_row or rows >= READY_ROWS:
            yield ready
            ready, rows = [], 0
    if ready:
        yield ready


def _single_message(request: Mock) -> list[pa.RecordBatch]:
    """Return the whole answer if it is a single message without a delay; otherwise nothing."""
    room = min(request.rows_per_batch - request.first_row % request.rows_per_batch, MESSAGE_ROWS)
    return list(_messages(request)) if request.total_rows <= room and not request.delay_per_row else []


def _batches(request: Mock) -> Iterator[Batches]:
    pacer = BatchPacer()
    seconds = request.delay_per_row
    for ready in _ready(request):
        if seconds:
            time.sleep(pacer.begin(ready[0].num_rows * seconds))
            pacer.end()
        yield ready


async def _abatches(request: Mock) -> AsyncIterator[Batches]:
    pacer = BatchPacer()
    seconds = request.delay_per_row
    for ready in _ready(request):
        if seconds:
            await asyncio.sleep(pacer.begin(ready[0].num_rows * seconds))
            pacer.end()
        yield ready
