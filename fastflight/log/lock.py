"""Locks of the operating system, which allow one writer per folder. They end when their process ends or is killed."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from fastflight.errors import BusyError
from fastflight.log.disk import FILE_MODE

LOCK_NAME = "writer.lock"
# The file has the name of the lock's holder, cut to this length.
MAX_HOLDER_BYTES = 200
# Windows locks a range of bytes, and a locked byte cannot be read: lock one far behind the name.
_LOCKED_BYTE = 1 << 20


class FileLock:
    """A locked file that has the name of its holder. Raises `BusyError` at once if another process holds the lock."""

    def __init__(self, path: Path, holder: str = "") -> None:
        text = f"{holder or 'a process'} (pid {os.getpid()} on {socket.gethostname()})"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            if not _lock(self._descriptor):
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


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
