"""A group of shards: event loops, each in a thread of its own. One more thread detects loops that are blocked.

`of(name)` returns the same shard for the same name, in every process with the same number of shards. A device, its
requests and its bridge use the device's name, so they share a shard. `of(None)` returns the shard with the lowest load.
An owner has a shard that nobody else gets: its code may block it.

Each loop regularly gets a callback. The time until it runs is the lag of the loop, which delays everything on it. A
loop that has not run the callback for `STUCK_SECONDS` is stuck in a call that should not run on it. The stack of its
thread is logged once, and a line when the loop runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from fastflight.concurrency.shard import CLOSE_SECONDS, Shard
from fastflight.concurrency.threads import PeriodicThread
from fastflight.lazy import Logger

log = Logger(__name__)

# Two callbacks a second have no measurable cost. A loop gets the next one only after it has run the last one.
LOOK_SECONDS = 0.5
# Everything on a loop waits for its slowest call. Live streams are flushed every 0.1 s; clients wait for seconds.
STUCK_SECONDS = 1.0
# A loop that only one own source uses is stuck for others after this time. Its code may compute for a while.
BLOCKED_SECONDS = 5.0
# How much of the stack is logged: the innermost calls, because one of them blocks the loop.
MAX_STACK_FRAMES = 20


@dataclass(slots=True)
class _Pulse:
    """The measurements of one loop, in seconds."""

    # When the callback that has not run yet was sent; None if none is pending.
    sent: float | None = None
    lag: float = 0.0
    longest: float = 0.0
    stuck: bool = False
    times_stuck: int = 0


class Shards:
    """`count` shards, named `name`-0 and so on. Start them, get one with `of`, close them; also a context manager."""

    def __init__(
        self,
        count: int = 1,
        name: str = "shard",
        *,
        owners: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if count < 1:
            raise ValueError("a group of shards has at least one")
        self._shared = tuple(Shard(f"{name}-{number}") for number in range(count))
        self._owned = {owner: Shard(owner, owner=owner) for owner in owners}
        self._pulses = {shard: _Pulse() for shard in (*self._shared, *self._owned.values())}
        self._clock = clock
        self._watchdog = PeriodicThread(self.look, LOOK_SECONDS, f"{name}-watchdog")

    def of(self, name: str | None) -> Shard:
        """Return the shard for `name`; for None, the one with the lowest load, of those without an owner."""
        if name is None:
            return min(self._shared, key=lambda shard: shard.load)
        if (own := self._owned.get(name)) is not None:
            return own
        # Python's own hash differs from process to process.
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return self._shared[int.from_bytes(digest) % len(self._shared)]

    def look(self) -> None:
        """Send a callback to every loop that has run the last one, and report loops that are stuck.

        The group does this every `LOOK_SECONDS`; tests that set the clock call it themselves.
        """
        for shard, pulse in self._pulses.items():
            if pulse.sent is None:
                pulse.sent = self._clock()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    shard.loop.call_soon_threadsafe(self._answered, shard, pulse)
                continue
            late = self._clock() - pulse.sent
            if not pulse.stuck and shard.running and late >= STUCK_SECONDS:
                pulse.stuck = True
                pulse.times_stuck += 1
                log.error("event loop stuck", shard=shard.name, seconds=round(late, 3), stack=_stack(shard))
            elif pulse.stuck and shard.owner and not shard.blocked and late > BLOCKED_SECONDS:
                shard.block(late)

    def _answered(self, shard: Shard, pulse: _Pulse) -> None:
        """Measure the lag. Runs on the loop."""
        if pulse.sent is not None:
            pulse.lag = self._clock() - pulse.sent
            pulse.longest = max(pulse.longest, pulse.lag)
        if pulse.stuck:
            pulse.stuck = False
            shard.blocked = None
            log.warning("event loop turns again", shard=shard.name, seconds=round(pulse.lag, 3))
        pulse.sent = None

    def stats(self) -> list[dict[str, Any]]:
        """Return for each shard: name, kind of loop, streams, tasks, last and longest lag, and whether it is stuck.

        The lags are in milliseconds and include that of a pending callback.
        """
        found = []
        for shard, pulse in self._pulses.items():
            sent = pulse.sent
            pending = 0.0 if sent is None or not shard.running else self._clock() - sent
            found.append(
                {
                    "name": shard.name,
                    "loop": type(shard.loop).__module__.partition(".")[0],
                    "streams": shard.load,
                    "tasks": shard.tasks(),
                    "lag_ms": round(max(pulse.lag, pending) * 1000, 3),
                    "longest_lag_ms": round(max(pulse.longest, pending) * 1000, 3),
                    "stuck": pulse.stuck,
                    "times_stuck": pulse.times_stuck,
                }
            )
        return found

    def start(self) -> Shards:
        """Start all threads. Returns self."""
        for shard in self:
            shard.start()
        self._watchdog.start()
        return self

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close all shards at once, as `Shard.close` does: the tasks of each have `timeout` seconds to end."""
        self._watchdog.close()
        deadline = time.monotonic() + 2 * timeout
        for shard in self:
            shard.stop(timeout)
        for shard in self:
            if not shard.blocked:
                shard.join(max(0.0, deadline - time.monotonic()))

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._pulses)

    def __len__(self) -> int:
        return len(self._pulses)

    def __enter__(self) -> Shards:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _stack(shard: Shard) -> str:
    """Return the stack of a loop's thread, as text."""
    frame = sys._current_frames().get(shard.thread_id or 0)
    return "".join(traceback.format_stack(frame)[-MAX_STACK_FRAMES:]) if frame is not None else ""
