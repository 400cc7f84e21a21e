"""Progress of transfers. Callers give callbacks of these types:

- `Report`: called with the rows so far, the bytes so far, and the total bytes expected, or None if unknown. When
  reading, bytes are those of the rows in Arrow's memory; for format `raw`, those of the file. Before the first row of a
  text file that the server reads as a whole, they are those that the server has. When writing, they are the bytes that
  the device has stored.
- `TreeReport`: called as the files of a folder are moved, with the path of the current file, the bytes moved so far,
  and the total bytes to move.
- `Resuming`: called once before a copy continues, with the bytes that are already there and the size of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

Report = Callable[[int, int, int | None], None]
TreeReport = Callable[[str, int, int], None]
Resuming = Callable[[int, int], None]


class Meter:
    """Counts batches and reports after each."""

    def __init__(self, report: Report | None, total_bytes: int | None = None) -> None:
        self.report = report
        self._total = total_bytes
        self.rows: int = 0
        self.bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.bytes += content_bytes(batch)
        if self.report is not None:
            self.report(self.rows, self.bytes, self._total)


def content_bytes(batch: pa.RecordBatch) -> int:
    """Return the number of file bytes in a `raw` batch; for any other batch, the size of its columns in memory."""
    if is_raw(batch.schema):
        import pyarrow.compute as pc  # not at the top: it takes longer to load than a listing takes

        return int(pc.sum(pc.binary_length(batch.column("data"))).as_py() or 0)
    return int(batch.nbytes)


def is_raw(schema: pa.Schema) -> bool:
    """Whether these are the columns of format `raw`: offsets and pieces of a file."""
    return bool(schema.names == ["offset", "data"] and schema.field("data").type == "binary")
