"""Converts the files of a tree to rows, and rows to the files of a tree.

Rows are `path, offset, data`: the path of a file relative to the folder, and a piece of the file with its offset. The
rows of a file are contiguous: the first has offset 0, there are no gaps, and no rows of other files are between them.
An empty file is one row with empty data. `TreeRows` makes rows of files; `TreeContent` makes files of rows.

When files are read, notes report their digests: `{"digests": [...]}` holds the sha256 of each file that has ended since
the last note, in order. Each comes at the latest with the batch that holds the first row of the next file, or at the
end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import pyarrow as pa

from fastflight.device import WrittenTree
from fastflight.errors import DataError
from fastflight.service.choices import MAX_FILES
from fastflight.service.requests import MAX_PATH_CHARACTERS
from fastflight.service.source import Acknowledge, Batches, Noted, Progress, Summary
from fastflight.tables.bare import empty

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
# The limits of a batch. On a slow line it is sent after FLUSH_SECONDS, however small.
BATCH_BYTES = 256 * 1024
BATCH_ROWS = 1024
FLUSH_SECONDS = 0.2


class TreeRows:
    """Makes batches from the bytes of a tree's files. No I/O.

    Call `feed` for each piece of a file and `end` after its last one, file by file; then `flush`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.schema: pa.Schema | None = SCHEMA
        self._clock = clock
        self._since = 0.0
        self._waiting: list[tuple[str, int, bytes]] = []
        self._waiting_bytes = 0
        self._sha256 = hashlib.sha256()
        # The hash of the current file, and the digests of ended files that no note has reported yet.
        self._file_sha256 = hashlib.sha256()
        self._digests: list[str] = []
        self._offset = 0
        self._files = 0
        self._bytes = 0

    def feed(self, path: str, piece: bytes) -> Batches:
        """Take the next bytes of a file and return the batches that are ready.

        An empty `piece` says that no bytes have come for a while; all waiting rows are returned.
        """
        if not piece:
            return self.flush()
        self._add(path, piece)
        full = self._waiting_bytes >= BATCH_BYTES or len(self._waiting) >= BATCH_ROWS
        return self.flush() if full or self._clock() - self._since >= FLUSH_SECONDS else []

    def end(self, path: str) -> None:
        """End the file at `path`."""
        if not self._offset:
            self._add(path, b"")
        self._digests.append(self._file_sha256.hexdigest())
        self._file_sha256 = hashlib.sha256()
        self._offset = 0
        self._files += 1

    def flush(self) -> Batches:
        """Return the waiting rows, with the digests that have not been reported."""
        digests, self._digests = self._digests, []
        batch = self._batch() if self._waiting else empty(SCHEMA)
        if digests:
            return [Noted(batch, {"digests": digests})]
        return [batch] if batch.num_rows else []

    def summary(self) -> Summary:
        """Return counts and the `sha256` of the `data` of all rows, in order."""
        return {"files": self._files, "bytes": self._bytes, "sha256": self._sha256.hexdigest()}

    def _batch(self) -> pa.RecordBatch:
        paths, offsets, pieces = zip(*self._waiting, strict=True)
        self._waiting.clear()
        self._waiting_bytes = 0
        columns = [pa.array(paths, pa.string()), pa.array(offsets, pa.int64()), pa.array(pieces, pa.binary())]
        return pa.record_batch(columns, schema=SCHEMA)

    def _add(self, path: str, piece: bytes) -> None:
        if not self._waiting:
            self._since = self._clock()
        self._waiting.append((path, self._offset, piece))
        self._waiting_bytes += len(piece)
        self._sha256.update(piece)
        self._file_sha256.update(piece)
        self._offset += len(piece)
        self._bytes += len(piece)


class TreeContent:
    """The files of a tree that is written to a device, from the rows of a client.

    Iterate `files`; use up the pieces of a file before taking the next one. The writer asks for the next
    piece once the one before is stored, so a batch is acknowledged when all its pieces are stored.
    """

    def __init__(self, schema: pa.Schema, acknowledge: Acknowledge) -> None:
        if not (set(SCHEMA.names) <= set(schema.names) and all(schema.field(f.name).type == f.type for f in SCHEMA)):
            raise DataError("a tree needs the columns path: string, offset: int64, data: binary", where="schema")
        self._acknowledge = acknowledge
        self._begun: set[str] = set()
        self._path: str | None = None
        self._end = 0
        self._rows = 0
        self._bytes = 0

    async def files(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
        """Yield the path of each file, and an iterator of its content."""
        pieces = self._pieces(batches)
        next_piece = await anext(pieces, None)

        async def content(path: str) -> AsyncGenerator[bytes, None]:
            nonlocal next_piece
            while next_piece is not None and next_piece[0] == path:
                yield next_piece[1]
                next_piece = await anext(pieces, None)

        while next_piece is not None:
            path, _ = next_piece
            yield path, content(path)

    def summary(self, written: WrittenTree) -> Summary:
        """Return the content of the last acknowledgement."""
        return {
            "rows": self._rows,
            "bytes": sum(each.bytes for _, each in written.files),
            "files": len(written.files),
            "at_once": written.at_once,
            "verified": ", ".join(sorted({each.verified for _, each in written.files})),
        }

    async def _pieces(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncGenerator[tuple[str, bytes], None]:
        async for batch in batches:
            for piece in self._checked(batch):
                yield piece
            self._stored(batch)

    def _checked(self, batch: pa.RecordBatch) -> Iterator[tuple[str, bytes]]:
        """Yield the path of each row, and its bytes. An empty file is one row without any."""
        for row in batch.select(SCHEMA.names).to_pylist():
            path, offset, data = row["path"], row["offset"], row["data"]
            if path is None or offset is None or data is None:
                raise DataError("a row lacks its path, offset or data", where="do_put")
            if path != self._path:
                self._begin(path)
            if offset != self._end:
                raise DataError(
                    f"a row has offset {offset}, the rows before it end at {self._end}",
                    where=path,
                    hint="Send the rows of each file together, in order, and without gaps",
                )
            self._end += len(data)
            self._bytes += len(data)
            yield path, data

    def _begin(self, path: str) -> None:
        relative(path)
        if path in self._begun:
            raise DataError("the rows of a file come in two places", where=path, hint="Send them together")
        if len(self._begun) == MAX_FILES:
            raise DataError(f"more than {MAX_FILES} files in one upload", hint="Send them in several")
        self._begun.add(path)
        self._path, self._end = path, 0

    def _stored(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._acknowledge(Progress(self._rows, self._bytes))


def relative(path: str) -> str:
    """Return `path` if it leads from a folder to a file below it. `DataError` otherwise."""
    if len(path) > MAX_PATH_CHARACTERS:
        raise DataError(f"a path of {len(path)} characters is too long: {MAX_PATH_CHARACTERS} are allowed")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise DataError("this is not the path of a file below the folder", where=repr(path))
    return path
