"""Local files as rows for a write to a device.

A file is copied byte for byte (format `raw`) unless the ending of the target names another table format than that of
the source: then the rows are converted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastflight.client.local_file import pieces_of, size_of
from fastflight.client.rows import ROWS_PER_BATCH, UploadRows, portions, rows_of
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile
from fastflight.tables import PARQUET, copied_as_is, format_of, is_table
from fastflight.tables.bare import one_content, one_number
from fastflight.tables.endings import ending_of

if TYPE_CHECKING:
    from fastflight.tables import RowReader, WholeFile

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

    from fastflight.tables import Layout, needs_whole_file, open_reader, open_whole

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
            file = open_whole(layout, lambda: (data for _, data in pieces_of(path)))
        if not file.schema.names:
            raise DataError("the file has no columns", where=str(path))
        return UploadRows(file.schema, _whole_batches(path, file))
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
