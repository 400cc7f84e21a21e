"""The log with segments of different sizes, so that one suite runs over each of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from fastflight.log import Retention, Store


class Engine(Protocol):
    """Opens the same store again and again."""

    def store(
        self, retention: Retention | None = None, clock: Callable[[], float] = time.time
    ) -> contextlib.AbstractContextManager[Store]: ...


class EmbeddedEngine:
    """Segments of `segment_bytes` in a folder."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        size = min(self._segment_bytes, 4000) if retention is not None else self._segment_bytes
        with Store(self._folder, sync_ms=0, segment_bytes=size, retention=retention, clock=clock, ticks=clock) as store:
            yield store
