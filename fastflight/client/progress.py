"""How far a transfer has come, told to whoever asked.

A `Report` is called as rows pass: rows so far, bytes so far, and the bytes expected in all, or None where that is not
known. Reading counts the bytes of the rows as Arrow holds them, which for format `raw` are those of the file;
writing counts the bytes that are safe on the device.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

Report = Callable[[int, int, int | None], None]


class Meter:
    """Counts batches and reports after each."""

    def __init__(self, report: Report | None, total_bytes: int | None = None) -> None:
        self._report = report
        self._total = total_bytes
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.bytes += content_bytes(batch)
        if self._report is not None:
            self._report(self.rows, self.bytes, self._total)


def content_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of a file that a `raw` batch carries; of any other batch, the bytes of its columns."""
    if is_raw(batch.schema):
        return int(pc.sum(pc.binary_length(batch.column("data"))).as_py() or 0)
    return int(batch.nbytes)


def is_raw(schema: pa.Schema) -> bool:
    """Whether these are the columns of format `raw`: pieces of a file with their offsets."""
    return bool(schema.names == ["offset", "data"] and pa.types.is_binary(schema.field("data").type))
