"""The files of a tree as rows, and rows as the files of a tree.

Rows are `path, offset, data`: the path of a file relative to the folder, and a piece of the file with its offset. The
rows of a file follow each other without a gap and without those of another between them, the first at offset 0; an
empty file is one row without data. `TreeRows` makes them from what is read, `TreeContent` takes them apart.

Of what is read, a note says `{"digests": [...]}`: the sha256 of each file that has ended and was not told of, in order;
at the latest with the first row of the file after it, or at the end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from fastflight.device import WrittenTree
from fastflight.errors import DataError
from fastflight.service.requests import MAX_FILES, MAX_PATH_CHARACTERS
from fastflight.service.source import Acknowledge, Lot, Noted, Progress, Summary
from fastflight.tables.bare import empty

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
# Rows share a batch up to this; on a slow line they wait for no more than a while.
BATCH_BYTES = 256 * 1024
BATCH_ROWS = 1024
FLUSH_SECONDS = 0.2


class TreeRows:
    """The rows of a tree as its bytes come in. No I/O."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.schema: pa.Schema | None = SCHEMA
        self._clock = clock
        self._since = 0.0
        self._waiting: list[tuple[str, int, bytes]] = []
        self._waiting_bytes = 0
        self._sha256 = hashlib.sha256()
        # Of the file that is read now, and of those that have ended and were not told of.
        self._file_sha256 = hashlib.sha256()
        self._digests: list[str] = []
        self._offset = 0
        self._files = 0
        self._bytes = 0

    def feed(self, path: str, piece: bytes) -> Lot:
        """The batches that are ready after the next bytes of a file, or after a while without any."""
        if not piece:
            return self.flush()
        self._add(path, piece)
        full = self._waiting_bytes >= BATCH_BYTES or len(self._waiting) >= BATCH_ROWS
        return self.flush() if full or self._clock() - self._since >= FLUSH_SECONDS else []

    def end(self, path: str) -> None:
        """The file at `path` has ended."""
        if not self._offset:
            self._add(path, b"")
        self._digests.append(self._file_sha256.hexdigest())
        self._file_sha256 = hashlib.sha256()
        self._offset = 0
        self._files += 1

    def flush(self) -> Lot:
        """What waits, and what is to be said of files that have ended."""
        digests, self._digests = self._digests, []
        batch = self._batch() if self._waiting else empty(SCHEMA)
        if digests:
            return [Noted(batch, {"digests": digests})]
        return [batch] if batch.num_rows else []

    def summary(self) -> Summary:
        """What was read; `sha256` is that of all `data`, in order."""
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


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file. `data` is empty for an empty file."""

    path: str
    data: bytes


class TreeContent:
    """Files on their way to a device: `files` or `afiles`, each to be used up before the next is taken.

    A piece is asked for when the one before is stored, and a batch acknowledged when its pieces are.
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

    def files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Each file's path, and its content in pieces."""
        for path, pieces in groupby(self._pieces(batches), lambda piece: piece.path):
            yield path, (piece.data for piece in pieces)

    async def afiles(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
        """As `files`, on an event loop."""
        pieces = self._apieces(batches)
        following = await anext(pieces, None)

        async def content(path: str) -> AsyncGenerator[bytes, None]:
            nonlocal following
            while following is not None and following.path == path:
                yield following.data
                following = await anext(pieces, None)

        while following is not None:
            yield following.path, content(following.path)

    def summary(self, written: WrittenTree) -> Summary:
        """The last acknowledgement."""
        files = len(written.files)
        size = sum(each.bytes for _, each in written.files)
        verified = {each.verified for _, each in written.files}
        told = {"rows": self._rows, "bytes": size, "files": files, "at_once": written.at_once}
        return {**told, "verified": ", ".join(sorted(verified))}

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Generator[Piece, None, None]:
        for batch in batches:
            yield from self._checked(batch)
            self._stored(batch)

    async def _apieces(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncGenerator[Piece, None]:
        async for batch in batches:
            for piece in self._checked(batch):
                yield piece
            self._stored(batch)

    def _checked(self, batch: pa.RecordBatch) -> Iterator[Piece]:
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
            yield Piece(path, data)

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
    """`path`, which must lead from a folder to a file below it. `DataError` otherwise."""
    if len(path) > MAX_PATH_CHARACTERS:
        raise DataError(f"a path of {len(path)} characters is too long: {MAX_PATH_CHARACTERS} are allowed")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise DataError("this is not the path of a file below the folder", where=repr(path))
    return path
