"""Detects event loops that are blocked: one thread regularly sends each loop a callback.

The time until the callback runs is the lag of the loop, which delays everything on it. A loop that has not run the
callback for `STUCK_SECONDS` is stuck in a call that should not run on it. The stack of its thread is logged once, and a
line when the loop runs again. `stats` is also sent to clients, so it has no stack.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastflight.concurrency.periodic import PeriodicThread
from fastflight.concurrency.shard import Shard
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
    """The measurements of one loop. Times are those of the watchdog's clock."""

    # When the callback that has not run yet was sent; None if none is pending.
    sent: float | None = None
    lag: float = 0.0
    longest: float = 0.0
    stuck: bool = False
    times_stuck: int = 0


class Watchdog:
    """Watches `shards` from `start` to `close`. `look` does one round, for tests that set the clock."""

    def __init__(
        self, shards: Iterable[Shard], name: str = "watchdog", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pulses = {shard: _Pulse() for shard in shards}
        self._clock = clock
        self._thread = PeriodicThread(self.look, LOOK_SECONDS, name)

    def start(self) -> None:
        """Start the thread, which looks every `LOOK_SECONDS`."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Does nothing the second time, or if it was not started."""
        self._thread.close()

    def look(self) -> None:
        """Send a callback to every loop that has run the last one, and report loops that are stuck."""
        for shard, pulse in self._pulses.items():
            sent = pulse.sent
            if sent is None:
                pulse.sent = self._clock()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    shard.loop.call_soon_threadsafe(self._answered, shard, pulse)
            elif not pulse.stuck and shard.running and (late := self._clock() - sent) >= STUCK_SECONDS:
                pulse.stuck = True
                pulse.times_stuck += 1
                log.error("event loop stuck", shard=shard.name, seconds=round(late, 3), stack=_stack(shard))
            elif pulse.stuck and shard.owner and not shard.blocked and (late := self._clock() - sent) > BLOCKED_SECONDS:
                shard.block(late)

    def stats(self, shard: Shard) -> dict[str, Any]:
        """Return the lags of one loop in milliseconds, including that of a pending callback."""
        pulse = self._pulses[shard]
        sent = pulse.sent
        pending = 0.0 if sent is None or not shard.running else self._clock() - sent
        return {
            "lag_ms": _ms(max(pulse.lag, pending)),
            "longest_lag_ms": _ms(max(pulse.longest, pending)),
            "stuck": pulse.stuck,
            "times_stuck": pulse.times_stuck,
        }

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


def _stack(shard: Shard) -> str:
    """Return the stack of a loop's thread, as text."""
    frame = sys._current_frames().get(shard.thread_id or 0)
    return "".join(traceback.format_stack(frame)[-MAX_STACK_FRAMES:]) if frame is not None else ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
