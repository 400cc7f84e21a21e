"""Stores whose rows are where reading may find them, so that one suite runs over each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from fastflight.log import LogReader, Retention, Store, compact

P = ParamSpec("P")
T = TypeVar("T")


class Engine:
    """Opens the store in a folder again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        with Store(self._folder, sync_ms=0, retention=retention, clock=clock, ticks=clock) as store:
            yield store


class CompactingEngine(Engine):
    """The tail is compacted before each look at a log: sorted, or with `file_bytes` 0 to Parquet files."""

    def __init__(self, folder: Path, file_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self._file_bytes = file_bytes
        self._monkeypatch = monkeypatch

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        def compact_before(look: Callable[P, T]) -> Callable[P, T]:
            def compact_and_look(*arguments: P.args, **named: P.kwargs) -> T:
                compact(store, file_bytes=self._file_bytes, least=1)
                return look(*arguments, **named)

            return compact_and_look

        with super().store(retention, clock) as store, self._monkeypatch.context() as patch:
            for name in ("read", "statistics", "extents", "stored"):
                patch.setattr(LogReader, name, compact_before(getattr(LogReader, name)))
            yield store
