"""Writing many files below a folder."""

from __future__ import annotations

from typing import Protocol

from fastflight.device import path as paths
from fastflight.device.entry import Written
from fastflight.device.transfer import Resumption, Transfer, WrittenTree
from fastflight.protocol import Conversation


class Writes(Protocol):
    """What a tree needs of a board."""

    def write(
        self, path: str, *, resume: Resumption | None, keep: bool, transfer: Transfer
    ) -> Conversation[Written]: ...


class Tree:
    """Files to be written below `folder`: `add` each, then `finish`."""

    def __init__(self, board: Writes, folder: str, transfer: Transfer) -> None:
        self._board = board
        self._folder = folder
        self._transfer = transfer
        self._files: list[tuple[str, Written]] = []

    def add(self, path: str) -> Conversation[None]:
        """Fetch the content of the file at `path` below the folder."""
        full = paths.join(self._folder, path.lstrip("/"))
        written = yield from self._board.write(full, resume=None, keep=False, transfer=self._transfer)
        self._files.append((full, written))

    def finish(self) -> Conversation[WrittenTree]:
        """Put all files in their places."""
        yield from ()
        return WrittenTree(tuple(self._files), len(self._files) < 2)
