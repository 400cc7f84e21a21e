"""What a copy of a file or a folder has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that is now the same here and on the device.

    `bytes` and `sha256` are those of the file. `resumed_at`: how much of it an earlier copy had left, and was not moved
    again. `unchanged`: it was the same already, and nothing was moved.
    """

    bytes: int
    sha256: str
    resumed_at: int = 0
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class CopiedTree:
    """A folder whose files are now the same here and on the device. Paths are relative to it.

    `files` were moved, `bytes` in all; `unchanged` were the same already. `skipped`, in a local folder, are links and
    what else is neither a file nor a folder.
    """

    files: tuple[str, ...]
    bytes: int
    unchanged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
