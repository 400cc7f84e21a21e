"""A cache of files of boards on the server's disk: a file is read over the line once for each content.

An entry's key is made of the digest that the board itself computes, so an entry is never out of date. It begins with a
SHA-256 of its content, which is checked whenever it is used; a damaged entry counts as missing. When the entries take
more than `max_bytes`, those that were used longest ago are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastflight.device import FileEntry
from fastflight.errors import StorageError
from fastflight.lazy import Logger
from fastflight.sources.spool import Spool, storage_errors, write_all

log = Logger(__name__)

DEFAULT_BYTES = 1 << 30
ENTRY = ".content"
NEW = ".new"
CHECKSUM_BYTES = 32
# An entry is written within seconds. An older unfinished one was left by a server that was killed.
ABANDONED_SECONDS = 3600.0
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

    def fits(self, spool: Spool) -> bool:
        """Whether the digest is that of the bytes in `spool`. It is not if the file was changed while it was read."""
        return self.digest == (spool.sha256.hex() if self.algorithm == "sha256" else f"{spool.crc32:08x}")


@dataclass(frozen=True, slots=True)
class Content:
    """The content of one file, as it was at one moment. Any thread may read it until `close`."""

    spool: Spool
    key: CacheKey
    origin: Origin

    def close(self) -> None:
        """Drop the content."""
        self.spool.close()


class FileCache:
    """The entries in `folder`, which is made on first use; without one, in a temporary folder that `close` removes.

    With 0 for `max_bytes` it keeps nothing and needs no folder.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self._given = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """The folder of the entries, which exists."""
        with self._lock, storage_errors("writing the cache"):
            if self._given is not None:
                self._given.mkdir(mode=0o700, parents=True, exist_ok=True)
                return self._given
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="fastflight-cache-")
            return Path(self._temporary.name)

    def can_keep(self, key: CacheKey) -> bool:
        """Whether a file becomes an entry, if it is not changed while it is read."""
        return bool(self.max_bytes and key.name) and key.entry.size <= self.max_bytes

    def find(self, key: CacheKey) -> Content | None:
        """Return the content of an entry; None if there is none, or if it is damaged or cannot be read."""
        if not key.name or not self.max_bytes:
            return None
        try:
            return self._find(key)
        except StorageError as error:
            log.warning("the cache cannot be read", reason=str(error))
            return None

    def _find(self, key: CacheKey) -> Content | None:
        path = self.folder / key.name
        with storage_errors("reading the cache"):
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                return None
            with contextlib.ExitStack() as on_error:
                on_error.callback(file.close)
                spool = Spool.of(file, CHECKSUM_BYTES)
                if spool.sha256 != os.pread(file.fileno(), CHECKSUM_BYTES, 0):
                    path.unlink(missing_ok=True)
                    return None
                with contextlib.suppress(OSError):  # another process may have removed it
                    os.utime(path)
                on_error.pop_all()
                return Content(spool, key, "cache")

    def store(self, key: CacheKey, spool: Spool) -> Content:
        """Return the content of a full spool, which belongs to it from now on.

        It becomes an entry of the cache if it has the digest that the board has computed, and is no larger than the
        cache may be. A disk that cannot take the entry costs the next reader time, and this one nothing.
        """
        if self.max_bytes and spool.size <= self.max_bytes and key.name and key.fits(spool):
            try:
                self._add(key, spool)
            except StorageError as error:
                log.warning("a file was not cached", device=key.device, path=key.entry.path, reason=str(error))
        return Content(spool, key, "board" if key.algorithm else "board without digests")

    def _add(self, key: CacheKey, spool: Spool) -> None:
        path = self.folder / f"{secrets.token_hex(8)}{NEW}"
        with storage_errors("writing the cache"):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                try:
                    write_all(descriptor, spool.sha256)
                    for piece in spool.pieces():
                        write_all(descriptor, piece)
                finally:
                    os.close(descriptor)
                with self._lock:
                    path.rename(path.with_name(key.name))
                    self._make_room(path.parent)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def _make_room(self, folder: Path) -> None:
        """Remove the entries that there is no room for, and the unfinished ones of a server that was killed."""
        entries = []
        for each in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                if each.name.endswith(ENTRY):
                    entries.append((each.stat().st_mtime_ns, each.stat().st_size, each.path))
                elif each.name.endswith(NEW) and each.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                    os.unlink(each.path)
        total = sum(size for _, size, _ in entries)
        for _, size, old in sorted(entries):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(old)
            total -= size

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            self._temporary.cleanup()
