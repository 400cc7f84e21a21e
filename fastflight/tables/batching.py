"""Joins small batches and cuts long ones, without making rows wait for long.

A `Batcher` has no clock: the caller passes the time, in seconds of any monotonic clock. While no batches come, the
caller must call `add([], now)` or `due(now)` now and then, and at the end `flush()`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

# Batches are joined up to this size. Larger ones are cut where they are sent (`runtime.outgoing`).
JOINED_BYTES = 2 * 1024 * 1024


class Batcher:
    """Joins and cuts batches of one schema to at most `batch_rows` rows each.

    A batch is returned once it is full, or when its first row has waited for `flush_seconds`. A batch that comes alone
    and within the limits is returned without a copy.
    """

    def __init__(self, batch_rows: int, flush_seconds: float, joined_bytes: int = JOINED_BYTES) -> None:
        self._batch_rows = batch_rows
        self._flush_seconds = flush_seconds
        self._joined_bytes = joined_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._since = 0.0

    def add(self, batches: Sequence[pa.RecordBatch], now: float) -> list[pa.RecordBatch]:
        """Add batches. Return full batches, and rows that have waited too long."""
        ready: list[pa.RecordBatch] = []
        for batch in batches:
            if self._bytes + batch.nbytes > self._joined_bytes:
                ready += self.flush()
            start = 0
            while start < batch.num_rows:
                head = batch.slice(start, self._batch_rows - self._rows)
                start += head.num_rows
                self._add(head, now)
                if self._rows == self._batch_rows:
                    ready += self.flush()
        return ready + self.due(now)

    def due(self, now: float) -> list[pa.RecordBatch]:
        """Return all waiting rows if the first of them has waited for `flush_seconds`; otherwise nothing."""
        return self.flush() if self._rows and now - self._since >= self._flush_seconds else []

    def flush(self) -> list[pa.RecordBatch]:
        """Return all waiting rows, as at most one batch."""
        waiting, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if len(waiting) < 2:
            return waiting
        return [pa.concat_batches(waiting)]

    def _add(self, batch: pa.RecordBatch, now: float) -> None:
        if not self._rows:
            self._since = now
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
