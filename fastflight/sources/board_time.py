"""Converts the ticks of a board into times of the host's clock. No I/O.

Each text line of a board carries the board's tick count, and the host notes the time at which it received the line.
Ticks measure intervals well but carry no time of day. The receive time does, but it is late by a delay that differs
from line to line. `BoardTime.feed` takes both values line by line and returns the host time at which the ticks were
read, in microseconds since 1970.

*Method.* The offset is host time minus board time. The delay is never negative, so receive time minus ticks is at or
above the true offset, and closest to it for the line with the smallest delay. The clocks differ in rate by at most
`drift_ppm`, so each line gives an upper bound of the offset at every other line: its own offset plus the drift in
between. The smallest of these bounds over the last `window_seconds` is used. A board time is therefore never later than
the receive time and never goes back within an alignment. It lies

* at most `late_us` before the true time: one unit of the ticks (a counter shows when it changed) plus rounding;
* at most `error_us`, plus the smallest delay of any line in the window, after the true time.

`error_us` is the most that the drift can change within one window, twice `drift_ppm` of the window, and is known in
advance. The smallest delay cannot be measured here: a board that sends every line 50 ms late looks like a board whose
clock is 50 ms slow.

*Alignments.* Ticks that count modulo `period` are unwrapped with the host time that has passed, which may be many
periods. An alignment is a run of lines whose ticks continue each other. A new one begins when the ticks go back, when a
line comes more than a second later or earlier than the clocks allow (the board was reset, the line stalled, a clock was
set), after a gap in the traffic, or after the connection was lost. It starts without knowledge of earlier lines: the
board time of its first line is the receive time. A reset is not detected if the board had run for less than that
second, or for a whole number of periods give or take that second. Times may then be wrong by as much, until the window
has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastflight.service.requests import Ticks

UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
MILLION = 1_000_000
# A deviation larger than this, beyond what the clocks allow, begins a new alignment. A reset is a jump by as long as
# the board had run, in practice longer than this; a line that is being read seldom stalls for longer.
JUMP_NS = 1_000_000_000
# The window is kept in this many steps, and drops whole steps: its memory does not grow with the number of lines.
STEPS = 32
# Alignments listed in one note, and in the summary; all are counted. A board that prints nonsense begins one with each
# line.
MAX_LISTED = 20

WENT_BACK = "the ticks went back"
BEHIND = "the ticks fell behind the clock by over a second"
AHEAD = "the ticks ran ahead of the clock by over a second"
SET_BACK = "the server's clock was set back"


class Alignment(NamedTuple):
    """The start of a new alignment: the chunk number of its first line, and why the ticks did not continue."""

    seq: int
    reason: str


class BoardTime:
    """The board times of one stream of lines."""

    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self._unit = UNIT_NS[ticks.unit]
        self._window = _OffsetWindow(round(ticks.window_seconds * 1e9), ticks.drift_ppm)
        # Receive time (ns), ticks and board time (ns since the alignment began) of the last line.
        self._last: tuple[int, int, int] | None = None
        self._reason = ""
        self._alignments = 0
        self._new: list[Alignment] = []
        self._listed: list[Alignment] = []
        self._error = 0
        self._corrected = 0

    def restart(self, reason: str) -> None:
        """Begin a new alignment at the next line, because its ticks may not continue those of earlier lines.

        `reason` says why; notes and the summary repeat it.
        """
        if self._last is not None:
            self._last, self._reason = None, reason

    def feed(self, seq: int, time_ns: int, value: int) -> int:
        """Return the time of ticks `value` in microseconds since 1970.

        The line that holds them began in chunk `seq`, and was received at `time_ns`.
        """
        if self._last is not None:
            self._check_continuity(time_ns, value)
        if self._last is None:
            self._begin(seq, time_ns, value)
        _, _, board_ns = self._last = time_ns, value, self._unwrapped(time_ns, value)
        lower, upper = self._window.add(board_ns, time_ns - board_ns)
        self._error = max(self._error, upper - lower)
        return (board_ns + upper) // 1000

    def take_note(self) -> Mapping[str, Any]:
        """Return the alignments that began since the last call, as metadata; empty if none did.

        The very first alignment is not reported.
        """
        new, self._new = self._new, []
        return {"alignments": [each._asdict() for each in new]} if new else {}

    def metadata(self) -> Mapping[str, Any]:
        """Return the bounds that hold for every board time, for the schema's metadata."""
        return {
            **self._ticks.model_dump(mode="json"),
            "error_us": self._drift_us(2 * self._window.width_ns) + self._drift_us(self._unit) + 1,
            "late_us": -(-self._unit // 1000) + self._drift_us(self._unit) + 1,
            "meaning": "when the ticks were read, by the server's clock: no more than late_us too early, and no more "
            "than error_us and the least delay of any line in the window too late",
            "unseen": "a delay that every line has",
        }

    def summary(self) -> Mapping[str, Any]:
        """Return what the lines showed, for the trailer.

        `alignments` counts them; `begun` lists the first `MAX_LISTED` after the very first. `error_us` is the bound for
        the lines that came, at most the one of the metadata. `corrected_us` is the most by which a line came earlier
        than the lines before it allow; those were at least that late. `drift_ppm` is how fast the board's clock falls
        behind in the last alignment; None until that is longer than its window.
        """
        return {
            "alignments": self._alignments,
            "begun": [each._asdict() for each in self._listed],
            "error_us": -(-self._error // 1000) + self._drift_us(self._unit),
            "corrected_us": self._corrected // 1000,
            "drift_ppm": self._window.drift(),
        }

    def _check_continuity(self, time_ns: int, value: int) -> None:
        """Call `restart` unless the ticks of this line continue those before."""
        assert self._last is not None
        last_ns, _, last_board_ns = self._last
        board_ns = self._unwrapped(time_ns, value)
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

    def _unwrapped(self, time_ns: int, value: int) -> int:
        """Return the nanoseconds of the board's clock since the alignment began."""
        assert self._last is not None
        last_ns, last, board_ns = self._last
        elapsed = value - last
        if period := self._ticks.period:
            elapsed %= period
            # Add the number of whole periods, possibly -1, that comes nearest to the host time that has passed.
            host_elapsed = (time_ns - last_ns) // self._unit
            elapsed += (2 * (host_elapsed - elapsed) + period) // (2 * period) * period
        return board_ns + elapsed * self._unit

    def _begin(self, seq: int, time_ns: int, value: int) -> None:
        self._last = time_ns, value, 0
        self._window.clear()
        self._alignments += 1
        if self._alignments > 1:
            for alignments in (self._new, self._listed):
                if len(alignments) < MAX_LISTED:
                    alignments.append(Alignment(seq, self._reason))

    def _drift_us(self, span_ns: int) -> int:
        """Return how far the clocks can drift apart in `span_ns`, in microseconds, rounded up."""
        return -(-span_ns * self._ticks.drift_ppm // (MILLION * 1000))


class _Step:
    """The lines of one step of the window, which begins at board time `start`.

    `least` and `most` are the smallest numbers that these lines give for the two bounds (see `_OffsetWindow`), `lowest`
    is the offset and board time of the line with the lowest offset.
    """

    __slots__ = ("least", "lowest", "most", "start")

    def __init__(self, start: int, line: tuple[int, int], least: int, most: int) -> None:
        self.start = start
        self.lowest = line
        self.least = least
        self.most = most


class _OffsetWindow:
    """Bounds the offset with the lines of the last `width_ns` of the board's clock, in exact integers.

    A line at `board_ns` with offset `o` bounds the offset at a distance: at most `o + drift * distance`, and at least
    `o - drift * distance` if the line had no delay. For a later line at `t` the distance is `t - board_ns`, so the
    part that does not depend on `t` is one number per line and bound, and only the minimum of each is kept. These
    numbers are in nanoseconds times a million, because the drift is in parts per million.
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
        """Return the least and the most that the offset can be at `board_ns`.

        The least holds if at least one line in the window had no delay.
        """
        drift = self._drift * board_ns
        return (self._most - drift) // MILLION, -(-(self._least + drift) // MILLION)

    def add(self, board_ns: int, offset: int) -> tuple[int, int]:
        """Add a line; return the `bounds` at its time."""
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
        """Return how fast the board's clock falls behind, in ppm; None until the lines are a window apart.

        It compares the lines with the lowest offset in the first window and in the present one.
        """
        if self._first is None or not self._steps:
            return None
        (first_offset, first_ns), (last_offset, last_ns) = self._first, min(step.lowest for step in self._steps)
        span = last_ns - first_ns
        return round((last_offset - first_offset) * MILLION / span, 1) if span >= self.width_ns else None
