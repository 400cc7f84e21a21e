"""Encodes the batches of a write as the bytes of one file.

The device's upload pulls the pieces: it asks for the next piece once the one before is stored, so a batch is
acknowledged when all its pieces are stored. The first batch is read before anything is written, because its offset says
where in the file it belongs.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pyarrow as pa

from fastflight.device import PartialWrite, Resumption, WrittenFile
from fastflight.errors import DataError
from fastflight.service.source import Acknowledge, PartialUpload, Progress, Summary
from fastflight.tables import Layout, open_writer

TEXT = ("csv", "jsonl")
# Values converted to text in one step. That takes some tens of milliseconds, during which the event loop is blocked. A
# batch may hold millions of values, and nulls or flags take a hundred times their memory as text.
TEXT_VALUES = 16 * 1024


class FileContent:
    """The content of one file that is written to a device.

    Call `announce_part` if the request may resume an earlier write, then `start`, then use up `pieces`, then
    call `summary`. With `sha256`, the pieces end in a `DataError` unless the content has that digest.
    """

    def __init__(self, layout: Layout, schema: pa.Schema, acknowledge: Acknowledge, sha256: str | None) -> None:
        self._layout = layout
        self._schema = schema
        self._acknowledge = acknowledge
        self._sha256 = sha256
        # Created here, so that a schema that the format cannot hold is refused before the device is touched.
        self._writer = open_writer(layout, schema)
        self._part: PartialWrite | None = None
        self._first: list[pa.RecordBatch] = []
        self._hash = hashlib.sha256()
        self._rows = 0
        self._bytes = 0
        self.resumption: Resumption | None = None

    def announce_part(self, part: PartialWrite | None) -> None:
        """Tell the client how much of the file an earlier write has left on the device."""
        self._part = part
        self._acknowledge(PartialUpload() if part is None else PartialUpload(part.size, part.algorithm, part.digest))

    def start(self, first: pa.RecordBatch | None) -> None:
        """Take the first batch, and set `resumption` if its rows continue the part on the device.

        `DataError` if the offset is not the end of the part, or if the request lacks the `sha256` of the whole file.
        """
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
                "a resumed write needs the sha256 of the whole file",
                where="sha256",
                hint="Give the sha256 of all of it",
            )
        self.resumption = Resumption(self._part, self._sha256)
        self._bytes = offset
        self._writer = open_writer(replace(self._layout, offset=offset), self._schema)

    async def pieces(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[bytes]:
        """Yield the header, the batches and the end of the file as bytes."""
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
        """Return the content of the last acknowledgement."""
        return {"rows": self._rows, "bytes": written.bytes, "sha256": written.sha256, "verified": written.verified}

    def _portions(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch into slices that are encoded in one step each."""
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
        """Compare the digest of the content with `sha256`. A resumed file is checked on the device, as a whole."""
        if self.resumption is None and self._sha256 not in (None, self._hash.hexdigest()):
            raise DataError("the content does not have the announced sha256", where="sha256", hint="Send it again")


def _offset(batch: pa.RecordBatch) -> int:
    """Return the offset of the first row of a `raw` batch; 0 if it has none."""
    if "offset" not in batch.schema.names or not batch.num_rows:
        return 0
    return int(batch.column("offset")[0].as_py() or 0)
