"""The bytes of one file on the server: in memory up to `MEMORY_BYTES`, then in a temporary file that has no name.

The operating system removes that file when it is closed, also if the server is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fastflight.concurrency.offload import off_loop
from fastflight.errors import StorageError
from fastflight.log.disk import failure

# Most files of boards are smaller, and never touch the server's disk.
MEMORY_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024


class Spool:
    """Takes the bytes of one file, and gives them back as often as they are wanted. One thread feeds it at a time.

    Raises `StorageError` or `StorageFull` if the temporary file cannot be written or read.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is for the temporary file; by default it is that of the operating system."""
        self._folder = folder
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._start = 0  # where the bytes begin in the file
        self._sha256 = hashlib.sha256()
        self.size = 0
        self.crc32 = 0

    @classmethod
    def of(cls, file: IO[bytes], start: int) -> Spool:
        """Return the bytes of an open file from `start` on. They are read once, for the digests."""
        spool = cls()
        spool._file, spool._start = file, start
        spool.size = max(os.fstat(file.fileno()).st_size - start, 0)
        for piece in spool.pieces():
            spool._add_digests(piece)
        return spool

    @property
    def sha256(self) -> bytes:
        """The SHA-256 of the bytes so far."""
        return self._sha256.digest()

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        self._add_digests(data)
        if self._fits_in_memory(data):
            self._memory += data
        else:
            with storage_errors("writing a temporary file"):
                if self._file is None:
                    self._file = self._move_to_file()
                write_all(self._file.fileno(), data)
        self.size += len(data)

    async def afeed(self, data: bytes) -> None:
        """As `feed`, on an event loop: a thread writes the file."""
        if self._fits_in_memory(data):
            self.feed(data)
        else:
            await off_loop(self.feed, data)

    def pieces(self, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `offset` on, at most `limit`."""
        end = self.size if limit is None else min(self.size, offset + limit)
        while offset < end:
            piece = self._read(min(PIECE_BYTES, end - offset), offset)
            if not piece:
                raise StorageError("a temporary file has become shorter", hint="Try again")
            offset += len(piece)
            yield piece

    def close(self) -> None:
        """Drop the bytes."""
        self._memory = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add_digests(self, data: bytes) -> None:
        self._sha256.update(data)
        self.crc32 = zlib.crc32(data, self.crc32)

    def _fits_in_memory(self, data: bytes) -> bool:
        return self._file is None and self.size + len(data) <= MEMORY_BYTES

    def _read(self, size: int, offset: int) -> bytes:
        if self._file is None:
            return bytes(memoryview(self._memory)[offset : offset + size])
        with storage_errors("reading a temporary file"):
            return os.pread(self._file.fileno(), size, self._start + offset)

    def _move_to_file(self) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._folder, prefix="fastflight-", buffering=0)
        try:
            write_all(file.fileno(), self._memory)
        except BaseException:
            file.close()
            raise
        self._memory = bytearray()
        return file


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data`. Raises `OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn an `OSError` into the error for it; `doing` says what failed."""
    try:
        yield
    except OSError as error:
        raise failure(error, doing) from error
