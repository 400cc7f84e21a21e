"""A device that is nothing but its tap, and a store whose disk fails on request."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from fastflight.concurrency import Shard
from fastflight.device import Device
from fastflight.log import Gap, NumberedRows, Store
from fastflight.sources.recorder import Recorder
from fastflight.sources.rounds import Rounds
from fastflight.transport.chunk_buffer import KEPT_BYTES
from fastflight.transport.tap import Tap
from tests.log.disks import FailingDisk

# For waits that end as soon as something happens; reached only when it does not.
SOON = 20.0


class RecordedLine:
    """What a recorder needs of a device."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.name = "demo"
        self.tap = Tap(kept_bytes, clock=lambda: 1_000_000 * self.tap.next_seq)
        self.recording = ""
        self.is_open = True
        self.shard: Shard | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        yield

    async def becomes(self, fits: Callable[[str], bool]) -> None:
        """Wait until what is said of its recording fits."""
        news = asyncio.Event()
        with self.tap.on_nudge(news.set):
            while not fits(self.recording):
                await news.wait()
                news.clear()


class Disk(FailingDisk):
    """A folder, with an errno for all writes while `broken` is set."""

    def __init__(self, folder: Path) -> None:
        self.broken = 0
        super().__init__(folder, lambda call, name: self.broken if call in ("write", "sync") else 0)

    def fill(self) -> None:
        self.broken = errno.ENOSPC


class SlowDisk(Disk):
    """One that writes only while it `goes_on`; `asked` once it does not."""

    def __init__(self, folder: Path) -> None:
        self.goes_on, self.asked = threading.Event(), threading.Event()
        self.goes_on.set()
        super().__init__(folder)

    def step(self, call: str, name: str) -> None:
        if call in ("write", "sync") and not self.goes_on.is_set():
            self.asked.set()
            self.goes_on.wait(SOON)
        super().step(call, name)


@contextlib.contextmanager
def recording(folder: Path, line: RecordedLine, disk: Disk | None = None) -> Iterator[tuple[Recorder, Store]]:
    """A recorder on a store of its own."""
    with Store(folder, sync_ms=0, disk=disk or Disk(folder)) as store:
        kept_in = store.open(line.name)
        yield Recorder(cast(Device, line), kept_in, Rounds(store, 0.0)), store


def told(items: Iterator[NumberedRows | Gap]) -> list[object]:
    """Rows as number, direction and data; what is missing as its numbers and the reason."""
    seen: list[object] = []
    for item in items:
        if isinstance(item, Gap):
            seen.append((item.first, item.last, item.why))
            continue
        for number, row in enumerate(item.batch.to_pylist(), start=item.first):
            assert row["time"].timestamp() * 1000 == number
            seen.append((number, row["direction"], row["data"]))
    return seen
