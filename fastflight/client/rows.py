"""Turns the caller's rows into batches for a write: one schema, and batches of a size that suits a device.

`rows_of` takes a pandas DataFrame, a Table, a RecordBatch, a RecordBatchReader, any object with `__arrow_c_stream__` (a
Polars DataFrame, a DuckDB relation, a `RowStream`), or any iterable of batches. It takes the first batch of an iterable
at once, because that gives the schema, and the others while they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.service.source import PartialUpload

if TYPE_CHECKING:
    import pandas as pd

    class ArrowStream(Protocol):
        """Rows that can be read through Arrow's C stream interface."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

    Writable: TypeAlias = (
        pd.DataFrame | pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | Iterable[pa.RecordBatch]
    )

# The server acknowledges each batch: few enough rows to show progress on a serial line, enough to keep overhead low.
ROWS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True)
class UploadRows:
    """Rows to write: batches of one schema, and the bytes that they make on the device, if known.

    If `after` is set, it is called with what the device has stored of an earlier write, and returns the batches to send
    in place of `batches`. `stop` is called, in another thread, when the server takes no more rows: `batches` that wait
    for something then end. With `paced`, only a few batches are sent ahead of their acknowledgements, so that a
    cancelled write ends soon.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    total_bytes: int | None = None
    after: Callable[[PartialUpload], Iterator[pa.RecordBatch]] | None = None
    paced: bool = False
    stop: Callable[[], None] | None = None


def rows_of(source: Any) -> UploadRows:
    """Return the rows of `source`. Raises `DataError` if its type is not supported, or it yields no batch."""
    if isinstance(source, UploadRows):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        source = source.to_reader(max_chunksize=ROWS_PER_BATCH)
    if isinstance(source, pa.RecordBatchReader):
        return UploadRows(source.schema, iter(source))
    if hasattr(source, "columns") and hasattr(source, "index"):
        return rows_of(_table_of(source))
    if hasattr(source, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(source)
        return UploadRows(stream.schema, portions(stream))
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise DataError(
            f"{type(source).__name__} holds no rows",
            hint="Give a DataFrame, a Table, record batches, or a pathlib.Path of a file",
        )
    return _from_iterable(iter(source))


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split `batches` into batches of at most `ROWS_PER_BATCH` rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_PER_BATCH):
            yield batch.slice(start, ROWS_PER_BATCH)


def _table_of(frame: pd.DataFrame) -> pa.Table:
    """Convert a DataFrame. Its index becomes a column only if it has a name: a plain row number is not data."""
    indexed = any(name is not None for name in frame.index.names)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=indexed)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"the DataFrame does not fit Arrow: {error}") from error
    return table.replace_schema_metadata(None)


def _from_iterable(batches: Iterator[Any]) -> UploadRows:
    first = next(batches, None)
    if first is None:
        raise DataError("no batches, so no columns", hint="Give a Table with a schema to write a file without rows")
    if not isinstance(first, pa.RecordBatch):
        raise DataError(f"{type(first).__name__} is not a record batch")
    return UploadRows(first.schema, _checked(chain([first], batches), first.schema))


def _checked(batches: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(schema):
            raise DataError("a batch does not have the schema of the first")
        yield batch
