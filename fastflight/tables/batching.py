"""Joins small batches and splits large ones, without making rows wait for long.

A `Batcher` has no clock: the caller passes the time, in seconds of any monotonic clock. While no batches come, the
caller must call `add([], now)` or `due(now)` now and then, and at the end `flush()`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

# The Rust Flight client refuses messages over 4 MB, and Arrow never splits one. Half of that leaves room for metadata.
MAX_BATCH_BYTES = 2 * 1024 * 1024


class Batcher:
    """Joins and splits batches of one schema to at most `batch_rows` rows and `max_bytes` bytes each.

    A batch is returned once it is full, or when its first row has waited for `flush_seconds`. A batch that comes alone
    and within the limits is returned without a copy. A single row larger than `max_bytes` is a batch of its own.
    """

    def __init__(self, batch_rows: int, flush_seconds: float, max_bytes: int = MAX_BATCH_BYTES) -> None:
        if batch_rows < 1 or max_bytes < 1:
            raise ValueError("a batch holds at least one row and one byte")
        self._batch_rows = batch_rows
        self._flush_seconds = flush_seconds
        self._max_bytes = max_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._since = 0.0

    def add(self, batches: Sequence[pa.RecordBatch], now: float) -> list[pa.RecordBatch]:
        """Add batches. Return full batches, and rows that have waited too long."""
        ready: list[pa.RecordBatch] = []
        for batch in batches:
            for piece in self._pieces(batch):
                self._add(piece, now, ready)
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

    def _add(self, piece: pa.RecordBatch, now: float, ready: list[pa.RecordBatch]) -> None:
        size = _size(piece)
        while piece.num_rows:
            if self._bytes and self._bytes + size > self._max_bytes:
                ready += self.flush()
            room = self._batch_rows - self._rows
            head, piece = (piece, piece.slice(piece.num_rows)) if piece.num_rows <= room else _cut(piece, room)
            if not self._rows:
                self._since = now
            self._waiting.append(head)
            self._rows += head.num_rows
            self._bytes += _size(head) if piece.num_rows else size
            if self._rows >= self._batch_rows or self._bytes >= self._max_bytes:
                ready += self.flush()
            size = _size(piece) if piece.num_rows else 0

    def _pieces(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Halve until each piece is below `max_bytes`; one row that is larger stays as it is."""
        if batch.num_rows < 2 or _size(batch) <= self._max_bytes:
            return [batch] if batch.num_rows else []
        head, tail = _cut(batch, batch.num_rows // 2)
        return self._pieces(head) + self._pieces(tail)


def _cut(batch: pa.RecordBatch, rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    return batch.slice(0, rows), batch.slice(rows)


def _size(batch: pa.RecordBatch) -> int:
    """Return the size of the batch's own rows in bytes. For a slice, the rest of its buffers is not counted."""
    size: int = batch.nbytes
    return size
