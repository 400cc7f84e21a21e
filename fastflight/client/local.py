"""Local files: reading their rows for a write to a device, and computing digests to compare with the board's.

A file is copied byte for byte (format `raw`) unless the ending of the target names another table format than that of
the source: then the rows are converted.
"""

from __future__ import annotations

import binascii
import hashlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.client.rows import ROWS_PER_BATCH, UploadRows, portions, rows_of
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile
from fastflight.tables import Layout, RowReader, format_of, open_reader
from fastflight.tables.bare import one_content, one_number

# Only for local files: its index is at its end, so it can be neither sent nor read piece by piece.
PARQUET = ".parquet"
# Bytes of a file per batch: on a 115200 baud line, one acknowledgement and one step of a progress bar per 1.4 s.
RAW_BATCH_BYTES = 16 * 1024
RAW_SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])
# Bytes of a local table that are read and parsed at a time.
PIECE_BYTES = 64 * 1024
# Bytes of a local file that are read and hashed at a time.
DIGEST_PIECE_BYTES = 256 * 1024


def is_table(path: str) -> bool:
    """Whether a file's ending is that of a table format."""
    return _ending(path) == PARQUET or format_of(path) != "raw"


def copied_as_is(source: str, target: str) -> bool:
    """Whether a copy from one name to the other is no conversion: same endings, or the target's is not a table's."""
    return _ending(source) == _ending(target) or not is_table(target)


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


def size_of(path: Path) -> int:
    """Return the size of a file. Raises `RequestError` for pipes (they block) and devices (they never end)."""
    with errors_of(path):
        state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise RequestError("is not a file", where=str(path), hint="Give the name of a file to read")
    return state.st_size


def pieces(path: Path, offset: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the bytes of a file, from `offset` on, as `raw` batches."""
    with errors_of(path), path.open("rb") as file:
        file.seek(offset)
        while data := file.read(RAW_BATCH_BYTES):
            yield piece(offset, data)
            offset += len(data)


def _table_rows(path: Path) -> UploadRows:
    """Open a local table in the format of its ending. Raises `DataError` for a row that does not fit its schema."""
    if _ending(path.name) == PARQUET:
        with errors_of(path):
            schema = pq.read_schema(path).remove_metadata()
        return UploadRows(schema, _parquet_batches(path))
    if not is_table(path.name):
        raise DataError(
            "its ending does not say what table it holds",
            where=str(path),
            hint="Convert from .csv, .jsonl, .arrow or .parquet; format raw copies any file as it is",
        )
    reader = open_reader(Layout(format_of(path.name), on_error="fail"))
    batches = _parsed_batches(path, reader)
    first = next(batches, None)
    if reader.schema is None or not reader.schema.names:
        raise DataError("the file has no columns", where=str(path))
    return UploadRows(reader.schema.remove_metadata(), batches if first is None else chain([first], batches))


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with errors_of(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_BATCH):
            yield batch.replace_schema_metadata(None)


def _parsed_batches(path: Path, reader: RowReader) -> Iterator[pa.RecordBatch]:
    with errors_of(path), path.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            yield from _without_metadata(reader.feed(data))
        yield from _without_metadata(reader.finish())


def _without_metadata(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.replace_schema_metadata(None) for batch in portions(batches))


def _ending(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def piece(offset: int, data: bytes) -> pa.RecordBatch:
    """Build a `raw` batch with one row."""
    return pa.record_batch([one_number(offset), one_content(data)], schema=RAW_SCHEMA)


def local_digest(path: Path, algorithm: str, limit: int | None = None) -> str:
    """Return the hexadecimal digest of a file, or of its first `limit` bytes; empty if the algorithm is unknown."""
    left = path.stat().st_size if limit is None else limit
    crc32, sha256 = 0, hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(DIGEST_PIECE_BYTES, left))):
            left -= len(data)
            if algorithm == "crc32":
                crc32 = binascii.crc32(data, crc32)
            else:
                sha256.update(data)
    return {"crc32": f"{crc32:08x}", "sha256": sha256.hexdigest()}.get(algorithm, "")


def agrees(path: Path, algorithm: str, digest: str, limit: int | None = None) -> bool:
    """Whether a file, or its first `limit` bytes, has this digest. False if `digest` is empty."""
    return bool(digest) and local_digest(path, algorithm, limit) == digest


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


@contextmanager
def os_errors_of(path: Path) -> Iterator[None]:
    """Raise an `OSError` as a `RequestError` that names the local file."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(path)
        raise RequestError(error.strerror or "cannot be used", where=where) from error
