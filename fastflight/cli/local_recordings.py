"""Reads recordings from a local folder, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastflight.errors import StorageError
from fastflight.gap import Gap
from fastflight.log import StoreReader
from fastflight.runtime.outgoing import close
from fastflight.service.resolve import plain
from fastflight.service.source import Lot, Noted, Reading
from fastflight.sources import TypedRows
from fastflight.sources.recording import RecordingSource
from fastflight.sources.recordings import RecordingStatus, status_of


def _reader_of(folder: Path) -> StoreReader:
    """Open the recordings in a folder. Raises `StorageError` if the folder does not exist."""
    if not folder.is_dir():
        raise StorageError("no such folder", where=str(folder), hint="`fastflight serve --recordings` makes it")
    return StoreReader(folder)


def recording_source(folder: Path) -> RecordingSource:
    """Return a source that answers `recording` requests from a folder."""
    reader = _reader_of(folder)
    return RecordingSource(reader, TypedRows(reader.log, folder=folder, may_write=lambda: False).parser)


def statuses(folder: Path) -> list[RecordingStatus]:
    """Return the states of the recordings in a folder."""
    reader = _reader_of(folder)
    return [status_of(name, reader.log(name).statistics()) for name in reader.names()]


class LocalRows:
    """The rows of `reading` behind the interface of a client's stream: a `SessionStream` of `tail`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.schema: pa.Schema = plain(reading.schema)
        self.gaps: list[Gap] = []
        self.recording = ""

    @property
    def missed(self) -> tuple[int, int]:
        return len(self.gaps), sum(gap.rows or 0 for gap in self.gaps)

    @property
    def summary(self) -> Mapping[str, Any]:
        return self._reading.summary()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for lot in self._reading.all_lots():
                yield from self._rows(lot)
        finally:
            close(self._reading.lots)

    def _rows(self, lot: Lot) -> Iterator[pa.RecordBatch]:
        for item in lot:
            if isinstance(item, Noted) and "gap" in item.note:
                self.gaps.append(Gap.of(item.note["gap"]))
            batch = item.batch if isinstance(item, Noted) else item
            if batch.num_rows:
                yield batch.cast(self.schema)
