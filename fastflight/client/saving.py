"""Local files made from the rows of a stream.

A new file appears whole: it is written under a temporary name beside its own, and renamed when all is there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.client.local import PARQUET, is_table
from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight.tables import Layout, RowWriter, format_of, open_writer


class _Encoder(Protocol):
    """Writes batches into an open file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class SavedFile:
    """A local file being made from batches, in the format of the file's ending.

    A context manager: the file appears under its name when the block ends without an error; until then, and after
    any error, whatever was there before stays. Then `bytes` is the size of the file.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.bytes = 0
        self._schema = schema.remove_metadata()
        self._file: BufferedRandom
        self._encoder: _Encoder | None = None
        # Unlike `resolve`, this takes a link that leads to itself as it stands.
        self._target = Path(os.path.realpath(path))
        # Short, whatever the file is called: its own name may be as long as names can be.
        self._temporary = self._target.with_name(f".fastflight-{secrets.token_hex(8)}.part")

    def __enter__(self) -> Self:
        if self._target.exists() and not self._target.is_file():
            raise RequestError("is not a file", where=str(self.path), hint="Give the name of a file to write")
        try:
            self._file = self._temporary.open("x+b")
        except OSError as error:
            raise RequestError(error.strerror or "cannot be written", where=str(self.path)) from error
        try:
            self._encoder = self._open_encoder()
        except BaseException:
            self._discard()
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. `DataError` where the format cannot hold it."""
        assert self._encoder is not None, "enter the context first"
        try:
            self._encoder.write(batch)
        except pa.ArrowException as error:
            raise DataError(str(error), where=str(self.path)) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            if self._encoder is not None:
                self._encoder.close()
            self._file.close()
            self.bytes = self._temporary.stat().st_size
            self._temporary.replace(self._target)
        except BaseException:
            self._discard()
            raise

    def _open_encoder(self) -> _Encoder:
        name = self._target.name
        if name.lower().endswith(PARQUET):
            return _Parquet(self._file, self._schema)
        if is_table(name):
            return _ByteFile(self._file, open_writer(Layout(format_of(name)), self._schema))
        raise RequestError(
            "its ending does not say how to write a table",
            where=str(self.path),
            hint="End it in .csv, .jsonl, .arrow or .parquet",
        )

    def _discard(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError, FastFlightError):
            if self._encoder is not None:  # Arrow's own writer would do it later, into a closed file
                self._encoder.close()
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class _ByteFile:
    """A file in a format whose writer gives bytes."""

    def __init__(self, file: IO[bytes], writer: RowWriter) -> None:
        self._file = file
        self._writer = writer
        file.write(writer.begin())

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(self._writer.encode(batch))

    def close(self) -> None:
        self._file.write(self._writer.finish())


class _Parquet:
    """A Parquet file: Arrow writes it by itself."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        try:
            self._writer = pq.ParquetWriter(file, schema)
        except pa.ArrowException as error:
            raise DataError(f"parquet cannot hold these columns: {error}") from error

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
