"""What has come of a file so far, beside its place: written by one copy at a time, whichever process runs it.

Two copies to one place would write into one part, and each would put in the place what it takes for its own. The lock
is the operating system's, and ends with the process that holds it, however that ends.
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

# Windows locks ranges of bytes, which nobody else can read then: one behind any file.
LOCKED_BYTE = 1 << 62


@contextlib.contextmanager
def held(path: Path, *, keep: bool) -> Iterator[BinaryIO]:
    """The part at `path`, made if it is not there, to be written at its end; `BusyError` where another copy has it.

    In the end it is removed if it is empty, or is not to be kept; `replace` gives it its place before that.
    """
    file = _claimed(path)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError, ValueError):  # full storage, which was told; or in its place, and closed
            file.flush()
        useless = not file.closed and _is_at(file, path) and not (keep and os.fstat(file.fileno()).st_size)
        if sys.platform == "win32":  # where what is open cannot be removed
            file.close()
        if useless:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()


def replace(file: BinaryIO, path: Path, target: Path) -> int:
    """Put the part in the place of `target`, in one step; its size."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    if sys.platform == "win32":  # where what is open cannot be renamed
        file.close()
    path.replace(target)
    return size


def _claimed(path: Path) -> BinaryIO:
    while True:
        file = _opened(path)
        try:
            if not _locked(file):
                raise BusyError(
                    "another copy is on its way there", where=str(path), hint="Wait for its end, or copy to another"
                )
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        # The other copy put it in its place in the meantime.
        file.close()


def _opened(path: Path) -> BinaryIO:
    """The file itself: by way of a link, what is written would be in a file that nobody has named."""
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


if sys.platform == "win32":
    import msvcrt

    def _locked(file: BinaryIO) -> bool:
        os.lseek(file.fileno(), LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _locked(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system that has no locks: as it is everywhere without this
            return True
        return True
