"""Appends what the recorders of one event loop have taken: all at the same moments, again and again.

A timer, a task and an append for each recorder would cost more than its rows. So a round takes what all boards have
sent since the last one, and appends it at once. The loops of a process have their rounds at the same time: what a
thousand boards have sent is one group of appends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from fastflight.errors import FastFlightError
from fastflight.log import NewRows, Store, Ticket
from fastflight.log.writer import refused
from fastflight.sources.recorded_rows import log_batch
from fastflight.transport.chunk_buffer import Chunk

# Shorter rounds would keep the loop busy.
MIN_SECONDS = 0.01
# One append takes rows of about this size. A body of the log has a few times as much.
GROUP_BYTES = 1024 * 1024


@dataclass(slots=True)
class PendingRows:
    """Rows on their way to the disk, the number of the first one, and the time of the last one, in ns since 1970.

    `ticket` is that of their append. The chunks are dropped when it is there.
    """

    chunks: Sequence[Chunk]
    rows: NewRows
    first: int
    last_ns: int
    ticket: Ticket | None = None


class Member(Protocol):
    """What takes part in rounds: a recorder."""

    def take(self) -> Sequence[PendingRows]:
        """Return the rows that are to be appended now. May raise."""

    def wake(self) -> None:
        """Look at what `take` has raised."""


class Rounds:
    """A round every `seconds`. Use it on one event loop, except for `append`."""

    def __init__(self, store: Store, seconds: float) -> None:
        self.seconds = seconds
        self._store = store
        self._period = max(seconds, MIN_SECONDS)
        self._members: dict[Member, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def joined(self, member: Member) -> Iterator[None]:
        """Let `member` take part for a `with` block."""
        self._members[member] = None
        self._schedule()
        try:
            yield
        finally:
            del self._members[member]

    async def append_now(self, take: Callable[[], Iterable[PendingRows]]) -> None:
        """Append what `take` returns, as soon as the disk takes more. If this is cancelled, nothing was taken."""
        await self._store.await_room()
        self.append(take())

    def append(self, taken: Iterable[PendingRows]) -> None:
        """Append rows. From any thread."""
        for group in _groups(taken):
            try:
                chunks = [*chain.from_iterable(each.chunks for each in group)]
                tickets = self._store.append(log_batch(chunks), [each.rows for each in group])
            except FastFlightError as error:
                tickets = [refused(error)] * len(group)
            for each, ticket in zip(group, tickets, strict=True):
                each.ticket, each.chunks = ticket, ()

    def _schedule(self) -> None:
        if self._timer is None and self._members:
            delay = self._period - time.monotonic() % self._period
            self._timer = asyncio.get_running_loop().call_later(delay, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._schedule()
        if not self._store.has_room:
            return  # the taps keep what they have
        taken: list[PendingRows] = []
        for member in self._members:
            try:
                taken += member.take()
            except Exception:  # its own task meets it again; the others of the loop go on
                member.wake()
        self.append(taken)


def _groups(taken: Iterable[PendingRows]) -> Iterator[list[PendingRows]]:
    """Yield groups that are not much larger than `GROUP_BYTES`, or than the rows of one recorder."""
    group: list[PendingRows] = []
    size = 0
    for each in taken:
        group.append(each)
        size += sum(len(chunk.data) for chunk in each.chunks)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
