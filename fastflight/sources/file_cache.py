"""A cache of files of boards on the server's disk: a file is read over the line once for each content.

An entry's key is made of the digest that the board itself computes, so an entry is never out of date. It begins with a
SHA-256 of its content, which is checked whenever it is used; a damaged entry counts as missing. When the entries take
more than `max_bytes`, those that were used longest ago are removed. A file whose board has no digests is kept only as
long as its `FileContent` is open.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastflight.device import FileEntry
from fastflight.errors import StorageError, StorageFull
from fastflight.log.disk import failure

DEFAULT_BYTES = 1 << 30
ENTRY = ".content"
NEW = ".new"
CHECKSUM_BYTES = 32
PIECE_BYTES = 256 * 1024
# Where a content came from: the cache, the board, or a board that cannot say whether a file has changed.
Origin = Literal["cache", "board", "board without digests"]


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A file as its board describes it; `algorithm` and `digest` are empty if the board computes none."""

    device: str
    entry: FileEntry
    algorithm: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The name of the entry's file; empty for a content that cannot be kept.

        A SHA-256 names a content wherever it is. A CRC-32 tells only versions of one file apart.
        """
        if not self.algorithm:
            return ""
        of_file = "" if self.algorithm == "sha256" else f":{self.device}:{self.entry.path}:{self.entry.size}"
        return hashlib.sha256(f"{self.algorithm}:{self.digest}{of_file}".encode()).hexdigest() + ENTRY

    def fits(self, sha256: str, crc32: int) -> bool:
        """Whether the digest is that of a content with these digests."""
        return self.digest == (sha256 if self.algorithm == "sha256" else f"{crc32:08x}")


class CachedContent:
    """The content of one file, as it was at one moment. Any thread may read it until `close`."""

    def __init__(self, descriptor: int, size: int, key: CacheKey, origin: Origin) -> None:
        self._descriptor = descriptor
        self.size = size
        self.key = key
        self.origin: Origin = origin

    def pieces(self, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `offset` on, at most `limit`."""
        end = self.size if limit is None else min(self.size, offset + limit)
        while offset < end:
            piece = os.pread(self._descriptor, min(PIECE_BYTES, end - offset), CHECKSUM_BYTES + offset)
            if not piece:
                raise StorageError("a file of the cache has become shorter", hint="Try again")
            offset += len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class NewContent:
    """Takes the bytes of a file from a board. Call `finish` at their end, or `close`."""

    def __init__(self, cache: FileCache, key: CacheKey) -> None:
        self._cache = cache
        self._key = key
        self._path = cache.folder / f"{secrets.token_hex(8)}{NEW}"
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._size = 0
        with _storage_errors():
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._write(bytes(CHECKSUM_BYTES))
        except BaseException:
            self.close()
            raise

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. `StorageFull` if the file alone is larger than the cache may be."""
        self._size += len(piece)
        if self._size > self._cache.max_bytes:
            raise StorageFull(
                f"the file is larger than the cache, {self._cache.max_bytes} bytes",
                hint="Read it without the cache, or start the server with a larger one",
            )
        self._sha256.update(piece)
        self._crc32 = zlib.crc32(piece, self._crc32)
        self._write(piece)

    def finish(self) -> CachedContent:
        """Return the content. It becomes an entry of the cache if it has the digest that the board has computed.

        It does not if the file was changed while the board sent it.
        """
        with _storage_errors():
            os.pwrite(self._descriptor, self._sha256.digest(), 0)
            if self._key.algorithm and self._key.fits(self._sha256.hexdigest(), self._crc32):
                self._cache.add(self._key, self._path)
            else:
                self._path.unlink()
        descriptor, self._descriptor = self._descriptor, -1
        origin: Origin = "board" if self._key.algorithm else "board without digests"
        return CachedContent(descriptor, self._size, self._key, origin)

    def close(self) -> None:
        """Drop what has come. Does nothing after `finish`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            self._path.unlink(missing_ok=True)

    def _write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            with _storage_errors():
                rest = rest[os.write(self._descriptor, rest) :]


class FileCache:
    """The entries in `folder`, which is made on first use; without one, in a temporary folder that `close` removes."""

    def __init__(self, folder: Path | None = None, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self._given = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """The folder of the entries, which exists."""
        with self._lock, _storage_errors():
            if self._given is not None:
                self._given.mkdir(mode=0o700, parents=True, exist_ok=True)
                return self._given
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="fastflight-cache-")
            return Path(self._temporary.name)

    def find(self, key: CacheKey) -> CachedContent | None:
        """Return the content of an entry; None if there is none, or if it is damaged."""
        if not key.name:
            return None
        path = self.folder / key.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, "reading the cache") from error
        content = CachedContent(descriptor, os.fstat(descriptor).st_size - CHECKSUM_BYTES, key, "cache")
        if _is_whole(descriptor, content):
            with contextlib.suppress(OSError):  # another process may have removed it
                os.utime(path)
            return content
        content.close()
        path.unlink(missing_ok=True)
        return None

    def add(self, key: CacheKey, path: Path) -> None:
        """Make the file at `path` an entry, and remove old entries that there is no room for. Raises `OSError`."""
        with self._lock:
            path.rename(path.with_name(key.name))
            entries = []
            for each in path.parent.glob(f"*{ENTRY}"):
                with contextlib.suppress(FileNotFoundError):
                    entries.append((each.stat().st_mtime_ns, each.stat().st_size, each))
            total = sum(size for _, size, _ in entries)
            for _, size, each in sorted(entries):
                if total <= self.max_bytes:
                    break
                each.unlink(missing_ok=True)
                total -= size

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            self._temporary.cleanup()


def _is_whole(descriptor: int, content: CachedContent) -> bool:
    if content.size < 0:
        return False
    computed = hashlib.sha256()
    for piece in content.pieces():
        computed.update(piece)
    return os.pread(descriptor, CHECKSUM_BYTES, 0) == computed.digest()


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise failure(error, "writing the cache") from error
