"""A folder for what a target writes, for all of its executions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# In memory, where there is such a folder: what is synced to a disk takes longer than all else.
MEMORY = Path("/dev/shm")


class Folder:
    """`path` is there within `kept`."""

    def __init__(self) -> None:
        self.path = Path()

    @contextmanager
    def kept(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            self.path = Path(folder)
            yield
