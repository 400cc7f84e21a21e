"""Reads a stream to its end with plain `pyarrow.flight`, and counts rows and bytes.

Imports pyarrow and nothing of fastflight: it runs in processes that only read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

PATH_KEY = b"fastflight.path"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. Rows, bytes and `messages` (batches with rows) are counted here; the server says `path` and `trailer`.

    `schema` has no metadata. `first` is the arrival of the first row, by `time.perf_counter`; NaN without rows.
    """

    rows: int
    bytes: int
    path: str
    trailer: Mapping[str, Any] = field(default_factory=dict)
    messages: int = 0
    first: float = float("nan")
    schema: pa.Schema | None = None


def read(client: flight.FlightClient, ticket: bytes) -> Answer:
    """Request `ticket` and read the answer to its end, batch by batch. The data is not kept."""
    stream = client.do_get(flight.Ticket(ticket))
    counter = _Counter()
    trailer: Mapping[str, Any] = {}
    while True:
        try:
            chunk = stream.read_chunk()
        except StopIteration:
            break
        counter.add(chunk.data)
        if chunk.app_metadata is not None:
            trailer = json.loads(chunk.app_metadata.to_pybytes())
    path: bytes = (stream.schema.metadata or {}).get(PATH_KEY, b"")
    return Answer(
        counter.rows,
        counter.bytes,
        path.decode(),
        trailer,
        counter.messages,
        counter.first,
        stream.schema.remove_metadata(),
    )


class _Counter:
    """Counts rows and bytes of batches.

    `nbytes` is exact but slow: for 50 columns it takes as long as reading 1,000 rows. The total size of a batch's
    buffers takes a hundredth of that. So `nbytes` is computed once for each number of rows and size of buffers.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.messages = 0
        self.first = float("nan")
        self._known_sizes: dict[tuple[int, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if not self.messages:
            self.first = time.perf_counter()
        key = batch.num_rows, batch.get_total_buffer_size()
        size = self._known_sizes.get(key)
        if size is None:
            size = self._known_sizes[key] = batch.nbytes
        self.rows += batch.num_rows
        self.bytes += size
        self.messages += 1
