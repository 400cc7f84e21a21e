"""The values of a batch as Python's, for the screen and for JSON.

Arrow's calendar reaches further than Python's, which has the years 1 to 9999: a device, or a file of one, may hold a
time that Python has none for, or one in a zone that this computer does not know. It is text here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

# In place of a time within something else, which has no text of its own.
BEYOND = "<a time beyond the years 1 to 9999>"


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A dictionary for each row."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(each) for each in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if not pa.types.is_temporal(scalar.type):
            return BEYOND
        if pa.types.is_timestamp(scalar.type) and scalar.type.tz is not None:
            scalar = scalar.cast(pa.timestamp(scalar.type.unit, "UTC"))  # nobody here may know its zone
        return str(scalar.cast(pa.string()))
