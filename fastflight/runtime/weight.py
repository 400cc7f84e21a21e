"""What a batch takes of memory while it waits for somebody.

Arrow and Python keep more of a batch than its values: some 700 bytes for each column, however few its rows are. A line
of a live session has 40 bytes of values and takes 4 KB. Bounds on what waits that went by the values alone would be
passed a hundredfold by batches of a row.
"""

from __future__ import annotations

import pyarrow as pa

from fastflight.service.source import Noted

# As measured with pyarrow 26: 600 to 950 bytes, for numbers, text and dictionaries.
COLUMN_BYTES = 768
# The batch itself, and its place in a queue.
BATCH_BYTES = 256


def weight(item: pa.RecordBatch | Noted, values: int | None = None) -> int:
    """The bytes of a batch. Of its values there are `values`, where that is known better than by `nbytes`."""
    batch = item.batch if isinstance(item, Noted) else item
    return int((batch.nbytes if values is None else values) + BATCH_BYTES + COLUMN_BYTES * batch.num_columns)
