"""Clocks: `ManualClock` for code that takes a clock, `SettableClock` for the time of day of a whole process.

The clock of a Python process is set forward and back from outside while it runs, as somebody sets a computer's.

    with SettableClock(folder) as clock:
        ...                             # start a process with `clock.environment`, which calls `follow` first of all
        clock.set(86_400)               # it is tomorrow there

Only the time of day moves, and only Python's (`time.time`, `time.time_ns`): what waits goes by the monotonic clock,
which nobody can set, and the clocks of gRPC and of TLS are C's. A library that is loaded before all others would move
those too (libfaketime does), but Python's `sleep` then waits for a time that never comes.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

VARIABLE = "FASTFLIGHT_TESTING_CLOCK"
_AHEAD = struct.Struct("=q")


class ManualClock:
    """A clock for code that takes one as a function. It stands still; a test sets `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SettableClock:
    """The clock of the processes that follow it, for a `with` block. It begins as the computer's."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where the file is to be that says how far off it is."""
        self._file = folder / "clock"
        self._file.write_bytes(_AHEAD.pack(0))
        self.environment: Mapping[str, str] = {VARIABLE: str(self._file)}

    def __enter__(self) -> Self:
        self._shared = _mapped(self._file, mmap.ACCESS_WRITE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shared.close()

    def set(self, seconds: float) -> None:
        """Have it so far ahead of the computer's, or behind it, at once."""
        _AHEAD.pack_into(self._shared, 0, round(seconds * 1e9))


def follow(environment: Mapping[str, str]) -> None:
    """Follow the clock that `environment` names, if any: before others take `time.time` for theirs."""
    file = environment.get(VARIABLE)
    if file is None:
        return
    shared = _mapped(Path(file), mmap.ACCESS_READ)
    right, right_ns = time.time, time.time_ns

    def shifted() -> float:
        ahead: int = _AHEAD.unpack_from(shared)[0]
        return right() + ahead / 1e9

    def shifted_ns() -> int:
        ahead: int = _AHEAD.unpack_from(shared)[0]
        return right_ns() + ahead

    time.time, time.time_ns = shifted, shifted_ns


def _mapped(path: Path, access: int) -> mmap.mmap:
    with path.open("r+b" if access == mmap.ACCESS_WRITE else "rb") as file:
        return mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size, access=access)
