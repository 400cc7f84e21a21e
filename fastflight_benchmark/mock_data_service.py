"""A data service in one file: a table of numbers that comes at the pace that the request sets."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from threading import Event

import numpy as np
import pyarrow as pa
from pydantic import Field

from fastflight import Estimate, Source, SourceRequest, create_server


class NumbersRequest(SourceRequest):
    """What a client may ask for. The server refuses anything else, and says why."""

    type = "numbers"
    total_rows: int = Field(200_000, ge=0)
    rows_per_batch: int = Field(10_000, ge=1, le=1_000_000)
    seconds_per_row: float = Field(0.0, ge=0, le=1)


def batches(request: NumbersRequest) -> Iterator[pa.RecordBatch]:
    """Yield the table in batches of 50 columns."""
    numbers = np.arange(request.rows_per_batch, dtype=np.int32)
    whole = pa.record_batch({f"col_{i}": numbers + np.int32(i) for i in range(50)})
    for start in range(0, request.total_rows, request.rows_per_batch):
        yield whole.slice(0, request.total_rows - start)


def read(request: NumbersRequest) -> Iterator[pa.RecordBatch]:
    """Mode `sync`: runs in a thread, and may block."""
    for batch in batches(request):
        time.sleep(batch.num_rows * request.seconds_per_row)
        yield batch


async def aread(request: NumbersRequest) -> AsyncIterator[pa.RecordBatch]:
    """Mode `async`: runs on an event loop, and awaits what takes long."""
    for batch in batches(request):
        await asyncio.sleep(batch.num_rows * request.seconds_per_row)
        yield batch


def describe(request: NumbersRequest) -> Estimate:
    """What is known without reading."""
    schema = pa.schema([(f"col_{i}", pa.int32()) for i in range(50)])
    return Estimate(schema, rows=request.total_rows, bytes=200 * request.total_rows)


NUMBERS = Source(NumbersRequest, read=read, aread=aread, describe=describe)

if __name__ == "__main__":
    with create_server(sources=[NUMBERS]) as server, suppress(KeyboardInterrupt):
        print(f"serving {NUMBERS.name} at {server.location} until Ctrl-C")
        Event().wait()
