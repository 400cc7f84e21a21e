"""Locks of the operating system, which allow one writer per folder. They end when their process ends or is killed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fastflight.errors import BusyError
from fastflight.files import try_lock
from fastflight.log.disk import FILE_MODE

LOCK_NAME = "writer.lock"
# The file has the name of the lock's holder, cut to this length.
MAX_HOLDER_BYTES = 200


class FileLock:
    """A locked file that has the name of its holder. Raises `BusyError` at once if another process holds the lock."""

    def __init__(self, path: Path, holder: str = "") -> None:
        text = f"{holder or 'a process'} (pid {os.getpid()} on {socket.gethostname()})"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
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
