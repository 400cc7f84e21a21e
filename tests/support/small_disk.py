"""A disk that is small enough to be filled: a file system in memory, mounted for a while.

Linux, by whoever may mount: root, where a container has not taken that away.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.targets import TargetMissing

FILLER = ".filler"
HINT = "Run as root on Linux, where a container may mount"
# What a file system allots at once.
BLOCK_BYTES = 4096
MOUNT_SECONDS = 30.0


class SmallDisk:
    """`folder` is a disk of its own while the context lasts. `TargetMissing` says why that cannot be."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._size = size

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._size}", "fastflight", str(self.folder))
        except subprocess.CalledProcessError as error:
            raise TargetMissing("a small disk", error.stderr.strip() or "mount failed", HINT) from error
        except OSError as error:
            raise TargetMissing("a small disk", f"mount: {error.strerror}", HINT) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Lazily: whoever still has a file open there keeps it until then.
        _run("umount", "-l", str(self.folder))

    def free(self) -> int:
        """Bytes that are free."""
        there = os.statvfs(self.folder)
        return there.f_bavail * there.f_frsize

    def fill(self, room: int = 0) -> None:
        """Take all but `room` bytes, rounded down to blocks."""
        with open(self.folder / FILLER, "ab") as filler:
            while (taken := self.free() - room // BLOCK_BYTES * BLOCK_BYTES) > 0:
                with contextlib.suppress(OSError):  # others write here too: what they took is not there
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), taken)

    def empty(self) -> None:
        """Give back what `fill` took."""
        (self.folder / FILLER).unlink(missing_ok=True)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=MOUNT_SECONDS, check=True)  # no shell
