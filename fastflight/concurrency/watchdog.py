"""Notices event loops that are blocked: one thread regularly asks each loop to answer.

The time that a loop takes to answer is its lag, which is what everything on it had to wait. A loop that has not
answered for `STUCK_SECONDS` is stuck in a call that should not run on it: the log gets the stack of its thread, once,
and a line when the loop runs again. `stats` goes to clients too, so it has no stack.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from fastflight.concurrency.periodic import PeriodicThread
from fastflight.concurrency.shard import Shard

log = structlog.get_logger(__name__)

# Two wake-ups a second for each loop cost nothing that can be measured. A loop is asked again once it has answered.
LOOK_SECONDS = 0.5
# Everything on a loop waits for its slowest call: a live stream is flushed every 0.1 s, and clients wait for seconds.
STUCK_SECONDS = 1.0
# The innermost calls are the ones that block.
MAX_STACK_FRAMES = 20


@dataclass(slots=True)
class _Pulse:
    """The answers of one loop. Times are the clock's."""

    # When it was asked what it has not answered yet.
    asked: float | None = None
    lag: float = 0.0
    longest: float = 0.0
    stuck: bool = False
    times_stuck: int = 0


class Watchdog:
    """Watches `shards` from `start` to `close`; `look` is one round, for tests that set the clock."""

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
        """Ask every loop that has answered, and report those that are stuck."""
        for shard, pulse in self._pulses.items():
            asked = pulse.asked
            if asked is None:
                pulse.asked = self._clock()
                with contextlib.suppress(RuntimeError):  # it is closed
                    shard.loop.call_soon_threadsafe(self._answered, shard, pulse)
            elif not pulse.stuck and shard.running and (late := self._clock() - asked) >= STUCK_SECONDS:
                pulse.stuck = True
                pulse.times_stuck += 1
                log.error("event loop stuck", shard=shard.name, seconds=round(late, 3), stack=_stack(shard))

    def stats(self, shard: Shard) -> dict[str, Any]:
        """Lags of one loop in milliseconds, which include the question that it has not answered yet."""
        pulse = self._pulses[shard]
        asked = pulse.asked
        pending = 0.0 if asked is None or not shard.running else self._clock() - asked
        return {
            "lag_ms": _ms(max(pulse.lag, pending)),
            "longest_lag_ms": _ms(max(pulse.longest, pending)),
            "stuck": pulse.stuck,
            "times_stuck": pulse.times_stuck,
        }

    def _answered(self, shard: Shard, pulse: _Pulse) -> None:
        """The loop answers; runs on it."""
        if pulse.asked is not None:
            pulse.lag = self._clock() - pulse.asked
            pulse.longest = max(pulse.longest, pulse.lag)
        if pulse.stuck:
            pulse.stuck = False
            log.warning("event loop turns again", shard=shard.name, seconds=round(pulse.lag, 3))
        pulse.asked = None


def _stack(shard: Shard) -> str:
    """The calls that the thread of a loop is in."""
    frame = sys._current_frames().get(shard.thread_id or 0)
    return "".join(traceback.format_stack(frame)[-MAX_STACK_FRAMES:]) if frame is not None else ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
