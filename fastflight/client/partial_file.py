"""Partial files: a copy from a device is written beside its target, and replaces it when it is complete.

`locked` opens the partial file of one file (`FILE.part`), which an interrupted copy leaves, and locks it: otherwise two
copies to the same target would write to the same partial file, and each would rename it as its own. The lock is the
operating system's, so it ends with its process, however that ends.

`FolderWriter` stores the files of a folder. Each has a unique temporary name in its final folder, and is removed if it
is not completed. `local_path` refuses names that lead out of the folder before anything is written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from fastflight.client.answers import RemoteEntry
from fastflight.client.local_files import agrees
from fastflight.client.local_names import local_path
from fastflight.errors import BusyError, DataError, ProtocolError, RequestError
from fastflight.files import replacement, try_lock


@contextlib.contextmanager
def locked(path: Path, *, keep: bool) -> Iterator[BinaryIO]:
    """Open and lock the partial file at `path` for appending; create it if missing. Call `replace` when it is complete.

    Raises `BusyError` if another copy has locked it. On leaving the block, a file that `replace` has not moved is
    removed if it is empty or `keep` is false.
    """
    file = _open_locked(path)
    try:
        yield file
    finally:
        with contextlib.suppress(
            OSError, ValueError
        ):  # the disk is full, which a write has reported; or `replace` has closed it
            file.flush()
        unwanted = not file.closed and _is_at(file, path) and not (keep and os.fstat(file.fileno()).st_size)
        if sys.platform == "win32":  # cannot remove an open file
            file.close()
        if unwanted:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()


def replace(file: BinaryIO, path: Path, target: Path) -> int:
    """Rename the partial file to `target`, atomically. Return its size in bytes."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    if sys.platform == "win32":  # cannot rename an open file
        file.close()
    path.replace(target)
    return size


def _open_locked(path: Path) -> BinaryIO:
    while True:
        file = _open(path)
        try:
            if not _lock(file):
                raise BusyError(
                    "another copy is on its way there", where=str(path), hint="Wait for its end, or copy to another"
                )
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        # Another copy has renamed or removed this file since it was opened: open it again.
        file.close()


def _open(path: Path) -> BinaryIO:
    """Open the file without following a link: otherwise the copy would write to a file that the user did not name."""
    try:
        return open(path, "a+b", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RequestError(
            "a link stands where the part of a copy is kept", where=str(path), hint="Remove it"
        ) from error


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO) -> bool:
    try:
        return try_lock(file.fileno())
    except OSError:  # the file system has no locks: go on without one
        return True


class FolderWriter:
    """Writes files to a folder, one after another. A context manager: leaving it completes the last file."""

    def __init__(self, folder: Path, remote: Mapping[str, RemoteEntry]) -> None:
        self._folder = folder
        self._remote = remote
        # The current file, and the context that replaces the old file by it.
        self._file: BinaryIO | None = None
        self._replacement: AbstractContextManager[BinaryIO]
        self._size = 0
        self._sha256 = hashlib.sha256()
        # The sha256 digests, received from the server, of the next files.
        self._digests: deque[str] = deque()
        self.path: str = ""
        self.paths: list[str] = []
        self.bytes: int = 0

    def expect(self, digests: Iterable[str]) -> None:
        """Add the sha256 digests of the next files to be completed, in order."""
        self._digests.extend(digests)

    def add(self, path: str, offset: int, data: bytes) -> None:
        """Write the next piece of the current file, or the first piece of another file."""
        if path != self.path or self._file is None:
            self._finish()
            self._begin(path)
        if self._file is None or offset != self._size:
            raise ProtocolError("the pieces of a file do not follow each other", where=path)
        self._file.write(data)
        self._sha256.update(data)
        self._size += len(data)
        self.bytes += len(data)

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        elif self._file is not None:
            self._file = None
            self._replacement.__exit__(kind, error, traceback)
        self._digests.clear()

    def _begin(self, path: str) -> None:
        if path not in self._remote or path in self.paths:
            raise ProtocolError("the server sent a file that was not asked for", where=path)
        place = local_path(self._folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_file():
            raise RequestError("is not a file", where=str(place), hint="Remove it, or copy to another folder")
        self.path, self._size, self._sha256 = path, 0, hashlib.sha256()
        self._replacement = replacement(place, sync=False)
        self._file = self._replacement.__enter__()

    def _finish(self) -> None:
        """Verify the current file, and have it replace the old one."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with contextlib.ExitStack() as replacing:
            replacing.push(self._replacement)
            file.flush()
            if self._digests and self._digests.popleft() != self._sha256.hexdigest():
                raise DataError("what arrived is not what the device sent", where=self.path, hint="Try again")
            expected = self._remote[self.path]
            if expected.digest and not agrees(Path(file.name), expected.algorithm, expected.digest):
                raise DataError("the file changed while it was copied", where=self.path, hint="Try again")
        self.paths.append(self.path)
