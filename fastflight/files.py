"""Files that are replaced as a whole, and locks of the operating system, which end with their process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastflight.errors import BusyError

# Windows locks ranges of bytes, and nobody else can read these. So lock one byte that is beyond the end of any file.
LOCKED_BYTE = 1 << 62
# The ending of a file that is not whole yet. One that a killed process has left may be removed.
UNFINISHED = ".new"
# A locked file has the name of the lock's holder, cut to this length.
MAX_HOLDER_BYTES = 200


@contextlib.contextmanager
def replacement(path: Path, mode: int = 0o666, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Write a new file, which replaces the one at `path` when the block ends. If it raises, the old file stays.

    `mode` is that of the new file, less the process's mask. With `sync`, its content is on the disk before it replaces
    the old one. A symbolic link at `path` is replaced, not followed. The new file can also be read, by its `name` too.
    """
    # A short name that does not contain that of the file, which may already have the maximum length.
    new = path.with_name(f".fastflight-{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(new, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> bool:
        """Lock an open file until it is closed. Return whether nobody else has locked it."""
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)
        return True

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file until it is closed. Return whether nobody else has locked it.

        `OSError` if the file system has no locks.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class FileLock:
    """A locked file that has the name of its holder. Raises `BusyError` at once if another process holds the lock."""

    def __init__(self, path: Path, holder: str = "") -> None:
        text = f"{holder or 'a process'} (pid {os.getpid()} on {socket.gethostname()})"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not try_lock(self._descriptor):
                name = os.read(self._descriptor, MAX_HOLDER_BYTES).decode(errors="replace").strip()
                other = name or "another process"
                raise BusyError(
                    f"{other} is writing to it", holder=other, where=path.parent.name, hint="Stop it, or only read"
                )
            # The fixed length overwrites the name of the last holder. Truncating the file instead would sync it on some
            # file systems.
            os.write(self._descriptor, text.encode()[:MAX_HOLDER_BYTES].ljust(MAX_HOLDER_BYTES))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock. The file stays: if it were removed, two processes could lock two files of the same name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
