"""`machine.Timer` for a board with one thread.

Callbacks run in the main thread, and only where the board waits: at the friendly prompt and in `time.sleep*`. They do
not run while it computes, reads its stdin or is in the raw REPL. This is deliberately simpler than a real board: the
output of a timer never appears within an answer. With `--soft-timers` they run before each read of input as well, as
soft timers do on boards: a callback that reads the input takes it from the prompt and from the code that runs there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Timers:
    """The armed timers of one board."""

    def __init__(self, report: Callable[[BaseException], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.armed: dict[Timer, float] = {}
        self.clock = clock
        self._report = report
        self._is_running = False

    def run_due(self) -> float | None:
        """Call the callbacks that are due, unless one is running. Return the time of the next one, or None."""
        if self._is_running:
            return None
        self._is_running = True
        try:
            self._run_due()
        finally:
            self._is_running = False
        return min(self.armed.values(), default=None)

    def _run_due(self) -> None:
        for timer, due in sorted(self.armed.items(), key=lambda item: item[1]):
            now = self.clock()
            if due > now or timer not in self.armed:
                continue
            if timer.repeats:
                # Skip ticks that were missed, and keep the phase.
                following = due + timer.period * (1 + (now - due) // timer.period)
                # Rounding can give a time slightly in the past, which would cause an extra tick.
                self.armed[timer] = following if following > now else following + timer.period
            else:
                del self.armed[timer]
            try:
                timer.call()
            except Exception as error:
                self._report(error)


class Timer:
    """`machine.Timer`. The board's class is a subclass that sets `timers`."""

    ONE_SHOT = 0
    PERIODIC = 1
    timers: Timers

    def __init__(self, id: int = -1, **options: Any) -> None:
        self.period = 1.0
        self.repeats = True
        self._callback: Callable[[Timer], object] | None = None
        if options:
            self.init(**options)

    def init(
        self,
        *,
        mode: int = PERIODIC,
        period: int = -1,
        freq: float = -1,
        callback: Callable[[Timer], object] | None = None,
    ) -> None:
        """Start the timer. `period` is in milliseconds, `freq` in Hz; `freq` wins if both are given."""
        self.period = 1 / freq if freq > 0 else period / 1000
        if self.period <= 0:
            raise ValueError("period or freq must be positive")
        self.repeats = mode == self.PERIODIC
        self._callback = callback
        self.timers.armed[self] = self.timers.clock() + self.period

    def deinit(self) -> None:
        self.timers.armed.pop(self, None)

    def call(self) -> None:
        if self._callback is not None:
            self._callback(self)
