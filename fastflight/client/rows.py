"""Turns the caller's rows, or a local file, into batches for a write: one schema, and batches of a suitable size.

`rows_of` takes a pandas DataFrame, a Table, a RecordBatch, a RecordBatchReader, any object with `__arrow_c_stream__` (a
Polars DataFrame, a DuckDB relation, a `RowStream`), or any iterable of batches. It takes the first batch of an iterable
at once, because that gives the schema, and the others while they are sent.

`open_rows` takes the path of a local file as well. It is copied byte for byte (format `raw`) unless the ending of the
target names another table format than that of the source: then the rows are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from fastflight.client.local_files import pieces_of, size_of
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile
from fastflight.service.source import PartialUpload
from fastflight.tables import PARQUET, copied_as_is, format_of, is_table
from fastflight.tables.bare import one_content, one_number
from fastflight.tables.endings import ending_of

if TYPE_CHECKING:
    import pandas as pd

    class ArrowStream(Protocol):
        """Rows that can be read through Arrow's C stream interface."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

    Writable: TypeAlias = (
        pd.DataFrame | pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | Iterable[pa.RecordBatch]
    )
    from fastflight.tables import RowReader, WholeFile


# The server acknowledges each batch: few enough rows to show progress on a serial line, enough to keep overhead low.
ROWS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True)
class UploadRows:
    """Rows to write: batches of one schema, and the bytes that they make on the device, if known.

    `summary` has what is to be reported of the local file that they come from, as in the trailer of an answer.

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
    summary: Mapping[str, Any] = field(default_factory=dict)


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


RAW_SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])
# Bytes of a local table that are read and parsed at a time.
PIECE_BYTES = 64 * 1024


def open_rows(request: DeviceFile, source: Any) -> tuple[DeviceFile, UploadRows]:
    """Open the rows in `source`. Return them with the request to send: for a byte-for-byte copy its format is `raw`."""
    if not isinstance(source, Path):
        return request, rows_of(source)
    size = size_of(source)
    if request.format is None and copied_as_is(source.name, request.path):
        request = request.model_copy(update={"format": "raw"})
    if request.format == "raw":
        with errors_of(source):
            source.open("rb").close()
        return request, UploadRows(RAW_SCHEMA, pieces(source), size)
    if request.format is None and format_of(request.path) == "raw":
        raise RequestError(
            f"nothing says how the rows of {source.name} are to be written",
            where=request.path,
            hint="Give a format; raw copies the file as it is",
        )
    return request, _table_rows(source)


def pieces(path: Path, offset: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the bytes of a file, from `offset` on, as `raw` batches."""
    return (piece(start, data) for start, data in pieces_of(path, offset))


def _table_rows(path: Path) -> UploadRows:
    """Open a local table in the format of its ending. Raises `DataError` for a row or value that would be lost."""
    # Not at the top: a copy of bytes starts in half the time without the formats.
    import pyarrow.parquet as pq

    from fastflight.tables import Layout, WholeFile, needs_whole_file, open_reader

    if ending_of(path.name) == PARQUET:
        with errors_of(path):
            schema = pq.read_schema(path).remove_metadata()
        return UploadRows(schema, _parquet_batches(path))
    if not is_table(path.name):
        raise DataError(
            "its ending does not say what table it holds",
            where=str(path),
            hint="Convert from .csv, .jsonl, .arrow or .parquet; format raw copies any file as it is",
        )
    layout = Layout(format_of(path.name), on_error="lossless")
    if needs_whole_file(layout):
        with errors_of(path):
            file = WholeFile(layout, lambda: (data for _, data in pieces_of(path)))
        if not file.schema.names:
            raise DataError("the file has no columns", where=str(path))
        return UploadRows(file.schema, _whole_batches(path, file), summary=file.summary.as_dict())
    reader = open_reader(layout)
    batches = _parsed_batches(path, reader)
    first = next(batches, None)
    if reader.schema is None or not reader.schema.names:
        raise DataError("the file has no columns", where=str(path))
    return UploadRows(reader.schema.remove_metadata(), batches if first is None else chain([first], batches))


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    from pyarrow.parquet import ParquetFile

    with errors_of(path), ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_BATCH):
            yield batch.replace_schema_metadata(None)


def _whole_batches(path: Path, file: WholeFile) -> Iterator[pa.RecordBatch]:
    with errors_of(path):
        yield from portions(file.batches())


def _parsed_batches(path: Path, reader: RowReader) -> Iterator[pa.RecordBatch]:
    with errors_of(path), path.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            yield from _without_metadata(reader.feed(data))
        yield from _without_metadata(reader.finish())


def _without_metadata(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.replace_schema_metadata(None) for batch in portions(batches))


def piece(offset: int, data: bytes) -> pa.RecordBatch:
    """Build a `raw` batch with one row."""
    return pa.record_batch([one_number(offset), one_content(data)], schema=RAW_SCHEMA)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Raise errors of reading or parsing a local file as errors that name it."""
    try:
        yield
    except DataError as error:
        raise DataError(error.what, where=f"{path} {error.where}".rstrip(), hint=error.hint) from error
    except pa.ArrowException as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from error
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
