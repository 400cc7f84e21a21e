"""A file that takes room on the disk, so that the store has it when the disk is full.

A store deletes its oldest segment to make room, but must first write the states of the logs that are named only there.
On a full disk it removes the reserve and writes them into its place. No rows are written there: they would take it all.
"""

from __future__ import annotations

import os

from fastflight.log.disk import Disk, write_new

RESERVE_NAME = "room.reserve"
# The file has a multiple of this: as much for a new segment and for what a file system allots beside the data.
STEP_BYTES = 64 * 1024


class Reserve:
    """The reserve of a folder. `fill` creates it, and `release` removes it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._size = self._find()

    def fill(self, needed: int) -> None:
        """Have room for at least `needed` bytes. Raises `OSError`, and changes nothing, if the disk has no room."""
        size = (needed // STEP_BYTES + 2) * STEP_BYTES
        if self._size < size:
            # Random bytes, because some file systems give no room to zeros.
            write_new(self._disk, RESERVE_NAME, [os.urandom(size)])
            self._size = size

    def release(self) -> bool:
        """Free the room. Return whether there was any."""
        if not self._size:
            return False
        self._disk.remove(RESERVE_NAME)
        self._size = 0
        return True

    def _find(self) -> int:
        try:
            file = self._disk.open(RESERVE_NAME)
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()
