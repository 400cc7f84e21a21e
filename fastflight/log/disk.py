"""The file system interface of the log, small enough that a test can make each of its calls fail.

A `Disk` is one folder without subfolders. It raises the system's `OSError`s. `LocalDisk` is the real one. `failure`
converts an `OSError` to a `StorageError`, and is the only place that does.
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

# Only the user who makes recordings may read them.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077
# The endings of the files that a store and the leases create.
OWN_ENDINGS = (".seg", ".idx", ".parts", ".parquet", ".lock", ".lease", ".reserve", ".new")
# The system's errors for a disk, a quota or a file that takes no more.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# writev takes at most IOV_MAX (1024 on Linux and macOS) pieces.
PIECES_PER_WRITE = 1024


class File(Protocol):
    """An open file. `write` appends; `read` takes an offset."""

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Append `pieces` and return how many bytes were written, which may be fewer than they have."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer at the end of the file."""

    def size(self) -> int:
        """Return the number of bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; the next write appends there."""

    def sync(self) -> None:
        """Return when all written data is on the medium."""

    def close(self) -> None:
        """Close the descriptor."""


class Disk(Protocol):
    """One folder. Names have no path separators."""

    def names(self) -> list[str]:
        """Return the names of all files in the folder, sorted."""

    def create(self, name: str) -> File:
        """Create a file to write and read. Raises `FileExistsError` if it exists."""

    def open(self, name: str, *, writing: bool = False) -> File:
        """Open an existing file."""

    def rename(self, old: str, new: str) -> None:
        """Rename `old` to `new` atomically, and replace `new` if it exists."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def sync_folder(self) -> None:
        """Return when all creations, renames and removals of files are on the medium."""


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
        # On Windows a descriptor has one position. This is safe because each reader opens its own, and writes append.
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        return os.read(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        # Of the metadata, fdatasync writes the file size, and a reader needs no more.
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalDisk:
    """A folder of the operating system, which must exist."""

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
            return  # Windows cannot open a folder; NTFS journals its entries.
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private(folder: Path) -> bool:
    """Create `folder` if it is missing, and deny access to other users. Return whether they have no access to it.

    A folder that has other files too, or belongs to another user, keeps its mode: then only the recordings in it are
    made private.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    if os.name == "nt":  # the mode does not control access on Windows
        return True
    names = os.listdir(folder)
    for name in names:
        if name.endswith(OWN_ENDINGS):
            _restrict(folder / name, stat.S_ISREG, FILE_MODE)
    if all(name.endswith(OWN_ENDINGS) for name in names):
        _restrict(folder, stat.S_ISDIR, FOLDER_MODE)
    return not folder.stat().st_mode & OTHERS


def _restrict(path: Path, is_kind: Callable[[int], bool], mode: int) -> None:
    """Set `mode` if other users have rights to `path`, and the system allows it."""
    with contextlib.suppress(OSError):  # it is gone, or belongs to another user
        present = os.lstat(path).st_mode
        if is_kind(present) and present & OTHERS:
            os.chmod(path, mode)


def write_all(file: File, pieces: Sequence[bytes | memoryview]) -> None:
    """Append all of `pieces`, in several writes if the system accepts fewer bytes at a time."""
    rest = [piece for piece in pieces if piece]  # a write of nothing returns 0, which would look like a failure
    at = 0
    while at < len(rest):
        written = file.write(rest[at : at + PIECES_PER_WRITE])
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        while at < len(rest) and written >= len(rest[at]):
            written -= len(rest[at])
            at += 1
        if written:
            rest[at] = memoryview(rest[at])[written:]


def write_new(disk: Disk, name: str, pieces: Sequence[bytes | memoryview]) -> None:
    """Replace the content of file `name` by `pieces`, or leave the file as it was.

    Writes a temporary file, syncs it, renames it, and syncs the folder.
    """
    temporary = name + TEMPORARY
    with contextlib.suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.create(temporary)
    try:
        try:
            write_all(file, pieces)
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, name)
    except OSError:
        with contextlib.suppress(OSError):  # else it takes room on a full disk
            disk.remove(temporary)
        raise
    disk.sync_folder()


# The ending of unfinished files. The next writer that opens the folder removes them.
TEMPORARY = ".new"


def read_whole(disk: Disk, name: str) -> bytes:
    """Return the bytes of a file that fits into memory."""
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
    """Return the `StorageError` for a system error. It omits the system's text, which may have a path of the host."""
    if error.errno in NO_ROOM:
        return StorageFull(f"no room on the disk for {doing}", where=where, hint="Make room, or shorten the retention")
    reason = os.strerror(error.errno) if error.errno else "no reason given"
    return StorageError(f"{doing} failed: {reason}", where=where, hint="Look at the disk of the host")
