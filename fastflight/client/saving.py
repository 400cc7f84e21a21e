"""Writes the rows of a stream to a local file.

The file is written under a temporary name in the same folder, and renamed when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Protocol, Self

import pyarrow as pa

from fastflight.client.mcap_file import McapWriter
from fastflight.client.validation import ABOUT_ROWS, validating
from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight.files import replacement
from fastflight.tables import PARQUET, Layout, RowWriter, format_of, is_table, open_writer
from fastflight.tables.endings import MCAP
from fastflight.tables.parquet import RowGroupWriter


class _Encoder(Protocol):
    """Writes batches into an open file."""

    def write(self, batch: pa.RecordBatch) -> object: ...

    def close(self) -> None: ...


class SavedFile:
    """Writes batches to a local file, in the format of the file's ending.

    A context manager: when the block ends without an error, the file replaces any old one, and `bytes` is its size. On
    an error the old file stays.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, sync: bool = False) -> None:
        """With `sync`, the content is on the disk before it replaces the old file."""
        self.path = path
        self.bytes: int = 0
        self._schema = schema.remove_metadata()
        # Unlike `resolve`, `realpath` does not fail on a link to itself.
        self._target = Path(os.path.realpath(path))
        self._replacement = replacement(self._target, sync=sync)
        self._file: BinaryIO
        self._encoder: _Encoder | None = None

    def __enter__(self) -> Self:
        if self._target.exists() and not self._target.is_file():
            raise RequestError("is not a file", where=str(self.path), hint="Give the name of a file to write")
        try:
            self._file = self._replacement.__enter__()
        except OSError as error:
            raise RequestError(error.strerror or "cannot be written", where=str(self.path)) from error
        try:
            self._encoder = self._open_encoder()
        except BaseException as error:
            self._discard(error)
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises `DataError` if the format cannot hold it."""
        assert self._encoder is not None, "enter the context first"
        try:
            self._encoder.write(batch)
        except pa.ArrowException as error:
            raise DataError(str(error), where=str(self.path)) from error

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Store `metadata` in the file if it is Parquet or MCAP. Other formats have no place for it after the rows."""
        if isinstance(self._encoder, RowGroupWriter | McapWriter):
            self._encoder.add_metadata(metadata)

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        """Store a server's summary of the source in the file if it is Parquet."""
        if isinstance(self._encoder, RowGroupWriter):
            with validating(ABOUT_ROWS):
                self._encoder.add_summary(summary)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._encoder is not None, "enter the context first"
        try:
            self._encoder.close()  # also after an error: Arrow's writer would close itself later
            self.bytes = self._file.tell()
        except BaseException as failure:
            if error is None or not isinstance(failure, pa.ArrowException | OSError | FastFlightError):
                self._discard(failure)
                raise
        self._replacement.__exit__(kind, error, traceback)

    def _open_encoder(self) -> _Encoder:
        name = self._target.name
        if name.lower().endswith(PARQUET):
            return RowGroupWriter(self._file, self._schema)
        if name.lower().endswith(MCAP):
            return McapWriter(self._file, self._schema, self._target.stem)
        if is_table(name):
            return _TableFile(self._file, open_writer(Layout(format_of(name)), self._schema))
        raise RequestError(
            "its ending does not say how to write a table",
            where=str(self.path),
            hint="End it in .csv, .jsonl, .arrow, .parquet or .mcap",
        )

    def _discard(self, error: BaseException) -> None:
        self._replacement.__exit__(type(error), error, error.__traceback__)


class _TableFile:
    """Writes a format that is encoded by a `RowWriter`."""

    def __init__(self, file: IO[bytes], writer: RowWriter) -> None:
        self._file = file
        self._writer = writer
        file.write(writer.begin())

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(self._writer.encode(batch))

    def close(self) -> None:
        self._file.write(self._writer.finish())
