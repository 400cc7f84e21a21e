"""The partial file of a copy (`FILE.part`), locked so that only one copy of any process writes it.

Without the lock, two copies to the same target would write to the same partial file, and each would rename it as its
own. The lock is the operating system's, so it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastflight.errors import BusyError, RequestError
from fastflight.files import try_lock


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
