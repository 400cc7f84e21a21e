"""What is in a folder that a board, a server or a command may be writing to."""

from __future__ import annotations

import contextlib
from pathlib import Path


def files_below(folder: Path) -> dict[str, bytes]:
    """Each file below `folder` by its path. A partial file that vanishes meanwhile is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found
