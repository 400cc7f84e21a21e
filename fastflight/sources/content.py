"""The bytes of a file from the batches of a stream.

A piece is asked for when the one before is stored, and a batch acknowledged when its pieces are. The first batch is
looked at before anything is written: its offset says where in the file it belongs.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from fastflight.device import PartialWrite, Resumption, WrittenFile
from fastflight.errors import DataError
from fastflight.service.source import Acknowledge, PartialUpload, Progress, Summary
from fastflight.tables import Layout, open_writer

TEXT = ("csv", "jsonl")
# Values that become text at once, in some tens of milliseconds: an event loop does nothing else meanwhile. A batch may
# hold millions, and where they are nulls or flags they take a hundred times the room as text.
TEXT_VALUES = 16 * 1024
# What a thread has stored between two looks whether it is still wanted: six seconds of a line at 115200 baud.
LOOK_BYTES = 64 * 1024


class FileContent:
    """One file on its way to a device: `keep` if it may be resumed, then `start`, then `pieces` or `apieces`.

    With `sha256`, the content ends in a `DataError` unless it has that digest.
    """

    def __init__(self, layout: Layout, schema: pa.Schema, acknowledge: Acknowledge, sha256: str | None) -> None:
        self._layout = layout
        self._schema = schema
        self._acknowledge = acknowledge
        self._sha256 = sha256
        # Made at once: a schema that the format cannot hold is refused before the device is touched.
        self._writer = open_writer(layout, schema)
        self._part: PartialWrite | None = None
        self._first: list[pa.RecordBatch] = []
        self._hash = hashlib.sha256()
        self._rows = 0
        self._bytes = 0
        self.resumption: Resumption | None = None

    def keep(self, part: PartialWrite | None) -> None:
        """Tell the client what an earlier write left."""
        self._part = part
        self._acknowledge(PartialUpload() if part is None else PartialUpload(part.size, part.algorithm, part.digest))

    def start(self, first: pa.RecordBatch | None) -> None:
        """Take the first batch. From then on `resumption` says whether its bytes follow those that were kept."""
        if first is not None:
            self._first.append(first)
        if first is None or self._part is None or not (offset := _offset(first)):
            return
        if offset != self._part.size:
            raise DataError(
                f"the first row has offset {offset}",
                where="column offset",
                hint=f"Go on at {self._part.size}, where the part on the device ends, or begin at 0",
            )
        if self._sha256 is None:
            raise DataError(
                "nothing says what the whole file has to be", where="sha256", hint="Give the sha256 of all of it"
            )
        self.resumption = Resumption(self._part, self._sha256)
        self._bytes = offset
        self._writer = open_writer(replace(self._layout, offset=offset), self._schema)

    def pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """Header, batches and end, each as bytes."""
        yield self._counted(self._writer.begin())
        for batch in chain(self._first, batches):
            for portion in self._portions(batch):
                yield self._counted(self._writer.encode(portion))
            self._stored(batch)
        yield self._counted(self._writer.finish())
        self._check()

    async def apieces(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[bytes]:
        """As `pieces`, on an event loop."""
        yield self._counted(self._writer.begin())
        for batch in self._first:
            for portion in self._portions(batch):
                yield self._counted(self._writer.encode(portion))
            self._stored(batch)
        async for batch in batches:
            for portion in self._portions(batch):
                yield self._counted(self._writer.encode(portion))
            self._stored(batch)
        yield self._counted(self._writer.finish())
        self._check()

    def summary(self, written: WrittenFile) -> Summary:
        """The last acknowledgement."""
        return {"rows": self._rows, "bytes": written.bytes, "sha256": written.sha256, "verified": written.verified}

    def _portions(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What becomes bytes at once."""
        rows = batch.num_rows
        step = max(TEXT_VALUES // max(batch.num_columns, 1), 1) if self._layout.format in TEXT else rows
        return (batch.slice(start, step) for start in range(0, max(rows, 1), max(step, 1)))

    def _counted(self, data: bytes) -> bytes:
        self._bytes += len(data)
        if self._sha256 is not None:
            self._hash.update(data)
        return data

    def _stored(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._acknowledge(Progress(self._rows, self._bytes))

    def _check(self) -> None:
        """The rows have ended. What follows a part is held against the digest of the whole on the device."""
        if self.resumption is None and self._sha256 not in (None, self._hash.hexdigest()):
            raise DataError("what came is not what was announced", where="sha256", hint="Send it again")


def while_wanted(pieces: Iterator[bytes], check: Callable[[], object]) -> Iterator[bytes]:
    """The same content for a writer that nothing can interrupt: `check` is called before each part, and may raise."""
    for piece in pieces:
        for start in range(0, max(len(piece), 1), LOOK_BYTES):
            check()
            yield piece[start : start + LOOK_BYTES]


def _offset(batch: pa.RecordBatch) -> int:
    """Where the first row of a `raw` batch belongs; 0 where it does not say."""
    if "offset" not in batch.schema.names or not batch.num_rows:
        return 0
    return int(batch.column("offset")[0].as_py() or 0)
