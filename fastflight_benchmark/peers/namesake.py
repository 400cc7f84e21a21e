# mypy: ignore-errors
"""The benchmark's table, served by PyPI's `fastflight`: another project, with the same import name as this one.

It runs in an environment of its own, where `fastflight` is that project, so nothing of this project can be imported.
The table is therefore defined here again. The command line names the file with the pacer of the source. Without a
delay, neither project's table lets its event loop run other tasks.

A ticket is JSON with the class of the parameters as `param_type`. The service behind `SyncTable` has only
`get_batches`, the one behind `AsyncTable` only `aget_batches`: if a service has both, that server never uses the
second. The method that runs writes its name, `sync` or `async`, into the schema as `fastflight.path`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fastflight import BaseDataService, BaseParams, FastFlightServer


class SyncTable(BaseParams):  # type: ignore[misc]
    """`total_rows` rows of `columns` columns of int32. The source takes `delay_per_row` seconds for each row."""

    total_rows: int
    rows_per_batch: int
    delay_per_row: float
    columns: int


class AsyncTable(BaseParams):  # type: ignore[misc]
    """The same table, served from an event loop."""

    total_rows: int
    rows_per_batch: int
    delay_per_row: float
    columns: int


class SyncService(BaseDataService[SyncTable]):  # type: ignore[misc]
    """Gives batches in the calling thread."""

    def get_batches(self, params: SyncTable, batch_size: int | None = None) -> Iterator[pa.RecordBatch]:
        pacer = Pacer()
        for batch in batches_of(params, "sync"):
            if params.delay_per_row:
                time.sleep(pacer.begin(batch.num_rows * params.delay_per_row))
                pacer.end()
            yield batch


class AsyncService(BaseDataService[AsyncTable]):  # type: ignore[misc]
    """Gives batches from a coroutine."""

    async def aget_batches(self, params: AsyncTable, batch_size: int | None = None) -> AsyncIterator[pa.RecordBatch]:
        pacer = Pacer()
        for batch in batches_of(params, "async"):
            if params.delay_per_row:
                await asyncio.sleep(pacer.begin(batch.num_rows * params.delay_per_row))
                pacer.end()
            yield batch


def batches_of(params: SyncTable | AsyncTable, path: str) -> Iterator[pa.RecordBatch]:
    """Yield all batches of a table. All are slices of the same one."""
    whole, rest = divmod(params.total_rows, params.rows_per_batch)
    full = cached_batch(params.rows_per_batch, params.columns, path)
    for _ in range(whole):
        yield full
    if rest:
        yield full.slice(0, rest)


CACHED_BATCHES: dict[tuple[int, int, str], pa.RecordBatch] = {}


def cached_batch(rows: int, columns: int, path: str) -> pa.RecordBatch:
    """Return a batch. Batches are cached."""
    key = rows, columns, path
    if key not in CACHED_BATCHES:
        numbers = np.arange(rows, dtype=np.int32)
        batch = pa.record_batch({f"col_{i}": pa.array(numbers + np.int32(i)) for i in range(columns)})
        CACHED_BATCHES[key] = batch.replace_schema_metadata({"fastflight.path": path})
    return CACHED_BATCHES[key]


def load_pacer(path: str) -> Any:
    """Return the class `BatchPacer` of the file at `path`."""
    found = importlib.util.spec_from_file_location("pacer", path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.BatchPacer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="grpc://127.0.0.1:0", help="where to listen; port 0: a free one")
    parser.add_argument("--pacer", required=True, help="the file with the pace of the source")
    options = parser.parse_args()
    # That project logs each stream that ends.
    logging.disable(logging.WARNING)
    Pacer = load_pacer(options.pacer)
    server = FastFlightServer(options.server)
    host = options.server.rpartition(":")[0]
    print(f"listening on {host}:{server.port}; the benchmark's table, by PyPI's fastflight", flush=True)
    server.serve()
