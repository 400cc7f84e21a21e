"""When a board did what a line tells of, by its own clock. No I/O.

A line carries the board's ticks and comes with the time at which it was received. Ticks tell intervals well, and no
time of day; the receive time tells that, late by a delay that differs from line to line. `BoardTime` is given both,
line by line, and gives the time of the ticks by the host's clock.

*How.* The delay is never negative, so receive time less ticks is at or above the offset between the two clocks, and is
nearest to it where the delay was least. The clocks differ in rate by at most `drift_ppm`, so each line bounds the
offset at every other: by its own, and the drift in between. The least of these bounds over the last `window_seconds` is
what is used. A board time is therefore never later than the receive time, never goes back within an alignment, and lies

* at most `late_us` before the true time (the ticks' unit: a counter says when it turned, and what is lost to rounding);
* at most `error_us`, plus the least delay that any line of the window had, after it.

`error_us` is what the drift can do to the lines of one window, and is known beforehand: twice `drift_ppm` of it. The
least delay cannot be seen from here: a board that sends each line 50 ms late looks like one whose clock is 50 ms slow.

*Alignments.* Ticks that count modulo `period` are unwrapped by the time that has passed, which may be many periods.
Where they cannot be carried on, a new alignment begins with nothing but the line at hand, whose board time is the time
at which it was received: when they went back, when the line came over a second later or sooner than the clocks allow
(the board was reset, the line stalled, a clock was set), after a gap, after the line was lost. A reset is thus missed
only of a board that had run for less than that second, or for whole periods to within it; times may then be wrong by as
much until the window has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastflight.service.requests import Ticks

UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
MILLION = 1_000_000
# Beyond what the clocks allow, a line that is so late or so early has another reason. A reset is a jump by as long as
# the board had run, which is longer where anybody looks; a line that is read at all seldom stalls for longer.
JUMP_NS = 1_000_000_000
# A window forgets in steps: what it keeps does not grow with the lines in it.
STEPS = 32
# Alignments that are listed in one note, and in the summary; all are counted. A board that prints nonsense begins one
# with each line.
MAX_TOLD = 20

WENT_BACK = "the ticks went back"
BEHIND = "the ticks fell behind the clock by over a second"
AHEAD = "the ticks ran ahead of the clock by over a second"
SET_BACK = "the server's clock was set back"


class Alignment(NamedTuple):
    """Where the ticks could not be carried on: the line's chunk, and why."""

    seq: int
    reason: str


class BoardTime:
    """The board times of one stream of lines."""

    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self._unit = UNIT_NS[ticks.unit]
        self._window = _OffsetWindow(round(ticks.window_seconds * 1e9), ticks.drift_ppm)
        self._last: tuple[int, int, int] | None = None
        self._reason = ""
        self._alignments = 0
        self._new: list[Alignment] = []
        self._listed: list[Alignment] = []
        self._error = 0
        self._corrected = 0

    def restart(self, reason: str) -> None:
        """The board's clock may be another one from the next line on."""
        if self._last is not None:
            self._last, self._reason = None, reason

    def feed(self, seq: int, time_ns: int, value: int) -> int:
        """The time of ticks `value`, in microseconds since 1970, on a line of chunk `seq` received at `time_ns`."""
        if self._last is not None:
            self._carry_on(time_ns, value)
        if self._last is None:
            self._begin(seq, time_ns, value)
        _, _, board_ns = self._last = time_ns, value, self._carried(time_ns, value)
        lower, upper = self._window.add(board_ns, time_ns - board_ns)
        self._error = max(self._error, upper - lower)
        return (board_ns + upper) // 1000

    def told(self) -> Mapping[str, Any]:
        """The alignments that began since this was asked last, but for the first of all; empty for none."""
        new, self._new = self._new, []
        return {"alignments": [each._asdict() for each in new]} if new else {}

    def metadata(self) -> Mapping[str, Any]:
        """What holds for every board time, for the schema."""
        return {
            **self._ticks.model_dump(mode="json"),
            "error_us": self._microseconds(2 * self._window.width_ns) + self._microseconds(self._unit) + 1,
            "late_us": -(-self._unit // 1000) + self._microseconds(self._unit) + 1,
            "meaning": "when the ticks were read, by the server's clock: no more than late_us too early, and no more "
            "than error_us and the least delay of any line in the window too late",
            "unseen": "a delay that every line has",
        }

    def summary(self) -> Mapping[str, Any]:
        """What came of it.

        `error_us`: of the lines that there were, at most as much as the metadata says. `corrected_us`: a line came so
        much sooner than those before it allow, which were at least so late. `drift_ppm`: how fast the board's clock
        falls behind, in the last alignment; None before it is longer than its window.
        """
        return {
            "alignments": self._alignments,
            "begun": [each._asdict() for each in self._listed],
            "error_us": -(-self._error // 1000) + self._microseconds(self._unit),
            "corrected_us": self._corrected // 1000,
            "drift_ppm": self._window.drift(),
        }

    def _carry_on(self, time_ns: int, value: int) -> None:
        """See whether the ticks can be carried on to this line; `restart` if not."""
        assert self._last is not None
        last_ns, _, last_board_ns = self._last
        board_ns = self._carried(time_ns, value)
        lower, upper = self._window.bounds(board_ns)
        offset = time_ns - board_ns
        if time_ns < last_ns:
            self.restart(SET_BACK)
        elif board_ns < last_board_ns:
            self.restart(WENT_BACK)
        elif offset > upper + JUMP_NS:
            self.restart(BEHIND)
        elif offset < lower - JUMP_NS:
            self.restart(AHEAD)
        else:
            self._corrected = max(self._corrected, lower - offset)

    def _carried(self, time_ns: int, value: int) -> int:
        """Nanoseconds of the board since the alignment began."""
        assert self._last is not None
        last_ns, last, board_ns = self._last
        gone = value - last
        if period := self._ticks.period:
            gone %= period
            # As many periods more, or one less, as come nearest to what has passed here.
            passed = (time_ns - last_ns) // self._unit
            gone += (2 * (passed - gone) + period) // (2 * period) * period
        return board_ns + gone * self._unit

    def _begin(self, seq: int, time_ns: int, value: int) -> None:
        self._last = time_ns, value, 0
        self._window.clear()
        self._alignments += 1
        if self._alignments > 1:
            for kept in (self._new, self._listed):
                if len(kept) < MAX_TOLD:
                    kept.append(Alignment(seq, self._reason))

    def _microseconds(self, span_ns: int) -> int:
        """What the drift makes of a time, rounded up."""
        return -(-span_ns * self._ticks.drift_ppm // (MILLION * 1000))


class _Step:
    """Lines from `start` on: the least of what bounds the offset from above and below, and the lowest line."""

    __slots__ = ("least", "lowest", "most", "start")

    def __init__(self, start: int, line: tuple[int, int], least: int, most: int) -> None:
        self.start = start
        self.lowest = line
        self.least = least
        self.most = most


class _OffsetWindow:
    """Bounds of the offset by the lines of the last `width_ns` of the board's clock, in exact integers.

    A line at `board_ns` with offset `o` allows at most `o + drift * distance` elsewhere, and if it came without delay,
    at least `o - drift * distance`. With the distance to a later line written out, the least over all lines needs one
    number each, which is a million times nanoseconds here.
    """

    def __init__(self, width_ns: int, drift_ppm: int) -> None:
        self.width_ns = width_ns
        self._drift = drift_ppm
        self._steps: deque[_Step] = deque()
        self._first: tuple[int, int] | None = None
        self._least = 0
        self._most = 0

    def clear(self) -> None:
        self._steps.clear()
        self._first = None

    def bounds(self, board_ns: int) -> tuple[int, int]:
        """The least that the offset can be at a line like this if one of the window had no delay, and the most."""
        drift = self._drift * board_ns
        return (self._most - drift) // MILLION, -(-(self._least + drift) // MILLION)

    def add(self, board_ns: int, offset: int) -> tuple[int, int]:
        """Take a line; give the `bounds` at it."""
        least = offset * MILLION - self._drift * board_ns
        most = offset * MILLION + self._drift * board_ns
        steps = self._steps
        dropped = not steps
        while steps and steps[0].start < board_ns - self.width_ns:
            steps.popleft()
            dropped = True
        if not steps or board_ns - steps[-1].start >= self.width_ns // STEPS:
            steps.append(_Step(board_ns, (offset, board_ns), least, most))
        else:
            step = steps[-1]
            step.lowest = min(step.lowest, (offset, board_ns))
            step.least = min(step.least, least)
            step.most = min(step.most, most)
        if dropped:
            self._least = min(step.least for step in steps)
            self._most = min(step.most for step in steps)
        else:
            self._least = min(self._least, least)
            self._most = min(self._most, most)
        if board_ns <= self.width_ns:
            self._first = min(self._first or (offset, board_ns), (offset, board_ns))
        return self.bounds(board_ns)

    def drift(self) -> float | None:
        """From the lowest line of the first window to that of the last."""
        if self._first is None or not self._steps:
            return None
        (then, since), (now, until) = self._first, min(step.lowest for step in self._steps)
        return round((now - then) * MILLION / (until - since), 1) if until - since >= self.width_ns else None
