"""A file that takes room on the disk, so that the store has it when the disk is full.

To delete rows, SQLite first writes what it changes. On a full disk the store removes the reserve, and deletes in its
room. No rows are written there: they would take it all.
"""

from __future__ import annotations

import contextlib
import os

from fastflight.log.disk import LocalDisk

RESERVE_NAME = "room.reserve"
# Twice what SQLite's log of changes has (`database.WAL_PAGES`), so that it can be moved into the tables.
RESERVE_BYTES = 4 * 1024 * 1024


class Reserve:
    """The reserve of a folder. `fill` creates it, and `release` removes it."""

    def __init__(self, disk: LocalDisk) -> None:
        self._disk = disk
        self._held = RESERVE_NAME in disk.names()

    def fill(self) -> None:
        """Have the room, if the disk has it."""
        if not self._held:
            with contextlib.suppress(OSError):  # the disk is full: the next sweep tries again
                # Random bytes, because some file systems give no room to zeros.
                self._disk.write(RESERVE_NAME, os.urandom(RESERVE_BYTES))
                self._held = True

    def release(self) -> bool:
        """Free the room. Return whether there was any."""
        if not self._held:
            return False
        self._disk.remove(RESERVE_NAME)
        self._held = False
        return True
