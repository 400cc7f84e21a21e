"""Local files: what is written to a device from one, and what is read from a device into one.

A file is copied byte for byte (format `raw`) where its ending is the device's; where the endings are of two different
tables it is converted by way of record batches. A new local file appears whole, under a temporary name until then.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.client.rows import Rows, rows_of
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile

# Endings that hold tables: asked for one of these, a file of another is converted, never renamed.
TABLE_ENDINGS = (".arrow", ".csv", ".jsonl", ".parquet")
# Bytes of a file per batch: one acknowledgement, and one step of a progress bar, each second of a 115200 baud line.
RAW_BATCH_BYTES = 16 * 1024
RAW_SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])


def copied_as_is(local: str, remote: str) -> bool:
    """Whether a file moves between these names without conversion."""
    ends = {ending_of(local), ending_of(remote)}
    return len(ends) == 1 or not ends & set(TABLE_ENDINGS)


def ending_of(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def opened(request: DeviceFile, source: Any) -> tuple[DeviceFile, Rows]:
    """The rows in `source`, and the request as it has to be sent with them."""
    if not isinstance(source, Path):
        return request, rows_of(source)
    if request.format is None and copied_as_is(source.name, request.path):
        request = request.model_copy(update={"format": "raw"})
    try:
        size = source.stat().st_size
        with source.open("rb"):
            pass
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(source)) from error
    if request.format == "raw":
        return request, Rows(RAW_SCHEMA, _pieces(source), size)
    return request, _table_rows(source)


def _pieces(path: Path) -> Iterator[pa.RecordBatch]:
    offset = 0
    with path.open("rb") as file:
        while data := file.read(RAW_BATCH_BYTES):
            yield pa.record_batch([[offset], [data]], schema=RAW_SCHEMA)
            offset += len(data)


def _table_rows(path: Path) -> Rows:
    raise DataError(f"no way to read {path.suffix}")


class Encoder(Protocol):
    """Writes batches of one schema into an open file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class LocalFile:
    """A local file being made from batches: `raw` pieces as they are, rows in the format of the file's ending.

    A context manager: the file appears under its name when the block ends without an error; until then, and after
    any error, whatever was there before stays.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, raw: bool) -> None:
        self.path = path
        self.sha256 = hashlib.sha256()
        self.bytes = 0
        self._schema = schema
        self._raw = raw
        self._target = path.resolve()
        self._temporary = self._target.with_name(f".{self._target.name}.{secrets.token_hex(4)}.part")

    def __enter__(self) -> Self:
        if self._target.exists() and not self._target.is_file():
            raise RequestError("is not a file", where=str(self.path), hint="Give the name of a file to write")
        try:
            self._file: IO[bytes] = self._temporary.open("xb")
        except OSError as error:
            raise RequestError(error.strerror or "cannot be written", where=str(self.path)) from error
        try:
            self._encoder = _Pieces(self) if self._raw else _encoder(self._file, self.path, self._schema)
        except BaseException:
            self._discard()
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. `DataError` where the format cannot hold it."""
        try:
            self._encoder.write(batch)
        except pa.ArrowException as error:
            raise DataError(str(error), where=str(self.path)) from error

    def append(self, data: bytes) -> None:
        self._file.write(data)
        self.sha256.update(data)
        self.bytes += len(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._encoder.close()
            self.bytes = self._file.tell()
            self._file.close()
            self._temporary.replace(self._target)
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class _Pieces:
    """A file in pieces, each at the offset where the one before ended."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        for offset, data in zip(batch.column("offset").to_pylist(), batch.column("data").to_pylist(), strict=True):
            if offset != self._file.bytes:
                raise DataError(f"a piece for offset {offset} came at {self._file.bytes}", where=str(self._file.path))
            self._file.append(data)

    def close(self) -> None:
        return


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def _encoder(file: IO[bytes], path: Path, schema: pa.Schema) -> Encoder:
    schema = schema.remove_metadata()
    if ending_of(path.name) == ".parquet":
        return _Parquet(file, schema)
    raise DataError("x")
