"""What the log needs of a file system: a seam small enough that a test can let every call of it fail.

A `Disk` is one folder, flat, and its errors are the system's `OSError`s. `LocalDisk` is the real one. `failure` turns
an `OSError` into the typed error, and is the only place that does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fastflight.errors import StorageError, StorageFull

# Recordings are for the user who makes them alone.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077
# Endings of the files that a store and the leases make.
OWN_ENDINGS = (".seg", ".idx", ".parts", ".parquet", ".lock", ".lease", ".new")
# writev takes at most IOV_MAX (1024 on Linux and macOS) pieces.
PIECES_PER_WRITE = 1024


class File(Protocol):
    """An open file. Writing appends; reading says where."""

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Append pieces; may write fewer bytes than they have, and says how many."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer at the end of the file."""

    def size(self) -> int:
        """Bytes in the file now."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; the next write goes there."""

    def sync(self) -> None:
        """Return when all that was written is on the medium."""

    def close(self) -> None:
        """Give the descriptor back."""


class Disk(Protocol):
    """One folder. Names hold no separators; a compacted part is a name too."""

    def names(self) -> list[str]:
        """Everything in the folder, sorted."""

    def create(self, name: str) -> File:
        """A new file, to write and read; `FileExistsError` where there is one."""

    def open(self, name: str, *, writing: bool = False) -> File:
        """A file that is there."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`, at once or not at all."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def sync_folder(self) -> None:
        """Return when what was created, renamed and removed is so on the medium."""


class LocalFile:
    """A file of the operating system, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        if hasattr(os, "writev"):
            return os.writev(self._descriptor, pieces[:PIECES_PER_WRITE])
        return os.write(self._descriptor, b"".join(pieces[:PIECES_PER_WRITE]))

    def read(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, offset)
        # Windows: a descriptor has one position, and each reader opens its own; the writer appends.
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        return os.read(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        # The size is what fdatasync writes of the metadata, and all that a reader needs.
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalDisk:
    """A folder of the operating system; made if it is not there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def create(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def open(self, name: str, *, writing: bool = False) -> File:
        return self._open(name, os.O_RDWR | os.O_APPEND if writing else os.O_RDONLY)

    def _open(self, name: str, flags: int) -> File:
        return LocalFile(os.open(self.folder / name, flags | getattr(os, "O_BINARY", 0), FILE_MODE))

    def rename(self, old: str, new: str) -> None:
        os.replace(self.folder / old, self.folder / new)

    def remove(self, name: str) -> None:
        os.unlink(self.folder / name)

    def sync_folder(self) -> None:
        if os.name == "nt":
            return  # A folder cannot be opened there; NTFS journals its entries.
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private(folder: Path) -> bool:
    """Make `folder` if it is missing, and keep other users out of it. Returns whether they are.

    A folder that holds other files too, or is somebody else's, keeps its mode: only the recordings in it change theirs.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    if os.name == "nt":  # rights are not in the mode there
        return True
    names = os.listdir(folder)
    for name in names:
        if name.endswith(OWN_ENDINGS):
            _tighten(folder / name, stat.S_ISREG, FILE_MODE)
    if all(name.endswith(OWN_ENDINGS) for name in names):
        _tighten(folder, stat.S_ISDIR, FOLDER_MODE)
    return not folder.stat().st_mode & OTHERS


def _tighten(path: Path, is_kind: Callable[[int], bool], mode: int) -> None:
    """Take rights from others, where that is possible."""
    with contextlib.suppress(OSError):  # it is gone, or belongs to somebody else
        there = os.lstat(path).st_mode
        if is_kind(there) and there & OTHERS:
            os.chmod(path, mode)


def write_all(file: File, pieces: Sequence[bytes | memoryview]) -> None:
    """Append all of `pieces`, however few bytes the system takes at a time."""
    left = list(pieces)
    at = 0
    while at < len(left):
        written = file.write(left[at : at + PIECES_PER_WRITE])
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        while at < len(left) and written >= len(left[at]):
            written -= len(left[at])
            at += 1
        if written:
            left[at] = memoryview(left[at])[written:]


def write_new(disk: Disk, name: str, pieces: Sequence[bytes | memoryview]) -> None:
    """Make `name` hold exactly `pieces`, or leave what was there: write beside it, sync, rename, sync the folder."""
    temporary = name + TEMPORARY
    with contextlib.suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.create(temporary)
    try:
        write_all(file, pieces)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, name)
    disk.sync_folder()


# The ending of files that are not finished. Whoever opens the folder to write removes them.
TEMPORARY = ".new"


def read_whole(disk: Disk, name: str) -> bytes:
    """The bytes of a file that fits into memory."""
    file = disk.open(name)
    try:
        size = file.size()
        pieces: list[bytes] = []
        at = 0
        while at < size and (piece := file.read(at, size - at)):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)
    finally:
        file.close()


def failure(error: OSError, doing: str, where: str = "") -> StorageError:
    """The typed error for what the system said. Its own text stays out: it may hold a path of the host."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"no room on the disk for {doing}", where=where, hint="Make room, or shorten the retention")
    reason = os.strerror(error.errno) if error.errno else "no reason given"
    return StorageError(f"{doing} failed: {reason}", where=where, hint="Look at the disk of the host")
