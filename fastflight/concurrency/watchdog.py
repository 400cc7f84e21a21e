"""Notices event loops that do not turn: one thread that asks each loop, now and then, to answer.

How long a loop took to answer is its lag: what everything on it had to wait. One that has not answered for
`STUCK_SECONDS` is stuck, in a call that should have been made off the loop: the log gets the stack of its thread, once,
and a word when it turns again. `stats` is for peers too, and has no stack in it.
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

from fastflight.concurrency.guard import Guard
from fastflight.concurrency.shard import Shard

log = structlog.get_logger(__name__)

# Two wake-ups a second for each loop cannot be measured; a loop is asked again only once it has answered.
LOOK_SECONDS = 0.5
# Everything on a loop waits as long as the slowest call: a live stream's flush is 0.1 s, a client's patience seconds.
STUCK_SECONDS = 1.0
# The innermost calls, which are the ones that block.
MAX_STACK_FRAMES = 20


@dataclass(slots=True)
class _Pulse:
    """What is known of one loop. Times are the clock's."""

    # When the question was put that has not been answered yet.
    asked: float | None = None
    lag: float = 0.0
    longest: float = 0.0
    stuck: bool = False
    times_stuck: int = 0


class Watchdog:
    """Looks after `shards` from `start` to `close`; `look` is one round, for those that keep the time themselves."""

    def __init__(
        self, shards: Iterable[Shard], name: str = "watchdog", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pulses = {shard: _Pulse() for shard in shards}
        self._clock = clock
        self._guard = Guard(self.look, LOOK_SECONDS, name)

    def start(self) -> None:
        """Look every `LOOK_SECONDS`, from a thread."""
        self._guard.start()

    def close(self) -> None:
        """Look no more. Does nothing the second time, or where it was not started."""
        self._guard.close()

    def look(self) -> None:
        """Ask every loop that has answered, and report those that have not for too long."""
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
        """What is known of one loop: lags in milliseconds, the one that is under way included."""
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
        """On the loop."""
        if pulse.asked is not None:
            pulse.lag = self._clock() - pulse.asked
            pulse.longest = max(pulse.longest, pulse.lag)
        if pulse.stuck:
            pulse.stuck = False
            log.warning("event loop turns again", shard=shard.name, seconds=round(pulse.lag, 3))
        pulse.asked = None


def _stack(shard: Shard) -> str:
    """Where the thread of a loop is now."""
    frame = sys._current_frames().get(shard.thread_id or 0)
    return "".join(traceback.format_stack(frame)[-MAX_STACK_FRAMES:]) if frame is not None else ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
