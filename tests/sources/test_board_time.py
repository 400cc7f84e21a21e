"""Board times: the true time lies where it is said to, for any drift, delay, wrap, stall and reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.service.requests import Ticks
from fastflight.sources.board_time import AHEAD, BEHIND, JUMP_NS, MAX_LISTED, SET_BACK, STEPS, WENT_BACK, BoardTime

START = 1_700_000_000_000_000_000
MS = 1_000_000
SECOND = 1_000_000_000
UNITS = {"ms": MS, "us": 1000}
# Of the lines that are made here; the ticks' periods are longer than twice that.
MAX_DELAY = 3 * SECOND


@dataclass
class Row:
    """A line: when its ticks were read, by either clock, when it was received, and what was made of it."""

    true_ns: int
    board_ns: int
    received_ns: int
    ticks_ns: int
    alignment: int
    board_time: int


class TickingBoard:
    """A board with a clock that drifts, behind a line that delays and keeps the order."""

    def __init__(self, ticks: Ticks, began_ticks: int = 0) -> None:
        self.ticks = ticks
        self.unit = UNITS[ticks.unit]
        self.times = BoardTime(ticks)
        self.now = START
        self.up = began_ticks * self.unit
        self.received = 0
        self.rows: list[Row] = []

    def wait(self, nanoseconds: int, ppm: int = 0) -> None:
        self.now += nanoseconds
        self.up += nanoseconds + nanoseconds * ppm // 1_000_000

    def say(self, delay: int = 0) -> Row:
        self.received = max(self.received, self.now + delay)
        counted = self.up // self.unit
        board_time = self.times.feed(len(self.rows), self.received, counted % (self.ticks.period or 2**80))
        alignments = self.times.summary()["alignments"]
        row = Row(self.now, self.up, self.received, counted * self.unit, alignments, board_time)
        self.rows.append(row)
        return row

    def reset(self) -> None:
        """Start again, unless that could not be told from going on."""
        period = (self.ticks.period or 2**80) * self.unit
        if JUMP_NS + MAX_DELAY < self.up % period - SECOND and self.up % period + SECOND < period - JUMP_NS - MAX_DELAY:
            self.up = 0

    def check(self) -> None:
        """All that is said of board times."""
        said = self.times.metadata()
        window = round(self.ticks.window_seconds * 1e9)
        sure = window - window // STEPS
        for index, row in enumerate(self.rows):
            assert row.board_time <= row.received_ns // 1000
            assert row.true_ns <= (row.board_time + said["late_us"]) * 1000
            since = [each for each in self.rows[: index + 1] if each.alignment == row.alignment]
            near = [each for each in since if row.board_ns - each.board_ns <= sure - self.unit]
            least = min(each.received_ns - each.true_ns + each.board_ns - each.ticks_ns for each in near or [row])
            assert row.board_time * 1000 <= row.true_ns + said["error_us"] * 1000 + least
            if index:
                assert row.board_time >= self.rows[index - 1].board_time
        assert self.times.summary()["error_us"] <= said["error_us"]


STEP = st.tuples(
    st.sampled_from(["say"] * 8 + ["reset", "lost"]),
    st.one_of(
        st.integers(0, 200 * MS), st.integers(0, 5 * SECOND), st.integers(0, 60 * SECOND), st.integers(0, 3600 * SECOND)
    ),
    st.integers(-99, 99),
    st.one_of(st.integers(0, 20 * MS), st.integers(0, MAX_DELAY)),
)


@settings(max_examples=300)
@given(
    ticks=st.builds(
        Ticks,
        column=st.just("ms"),
        unit=st.just("ms"),
        period=st.sampled_from([0, 2**14, 2**30]),
        window_seconds=st.sampled_from([0.5, 10.0, 600.0]),
    ),
    began=st.one_of(st.integers(0, 20_000), st.integers(0, 2**31)),
    steps=st.lists(STEP, max_size=60),
)
def test_the_true_time_lies_within_the_bound(ticks: Ticks, began: int, steps: list[tuple[str, int, int, int]]) -> None:
    board = TickingBoard(ticks, began)
    for event, pause, ppm, delay in steps:
        board.wait(pause, ppm)
        if event == "reset":
            board.reset()
        elif event == "lost":
            board.times.restart("the line to the device was lost")
        else:
            board.say(delay)
    board.check()


@given(
    up=st.integers(0, 60_000), more=st.integers(6_000, 60_000), longer=st.integers(1, 300_000), delay=st.integers(0, 16)
)
def test_a_reset_is_told_though_the_ticks_went_on(up: int, more: int, longer: int, delay: int) -> None:
    board = TickingBoard(Ticks(column="ms", window_seconds=600.0), began_ticks=up)
    board.say(delay * MS)
    board.wait(more * MS)
    board.reset()
    for pause in (up + longer, 100, 100):
        board.wait(pause * MS)
        board.say(delay * MS)
    board.check()
    assert [row.alignment for row in board.rows] == [1, 2, 2, 2]


@given(delays=st.lists(st.integers(0, 16 * MS), min_size=30, max_size=60), ppm=st.integers(-99, 99))
def test_a_steady_board_is_one_alignment_over_many_wraps(delays: list[int], ppm: int) -> None:
    board = TickingBoard(Ticks(column="us", unit="us", period=2**24), began_ticks=2**24 - 5)
    for delay in delays:
        board.wait(7 * SECOND, ppm)
        board.say(delay)
    board.check()
    assert board.times.summary()["alignments"] == 1
    assert board.times.take_note() == {}


def test_the_line_with_the_least_delay_tells_for_the_others() -> None:
    board = TickingBoard(Ticks(column="ms"))
    late = [board.say(delay * MS) and board.wait(100 * MS) for delay in (1, 16, 9, 12)]
    assert len(late) == 4
    first, *rest = board.rows
    assert first.board_time == first.received_ns // 1000
    # A millisecond after the true time, and what the clocks can drift apart in 0.1 s, 0.2 s, 0.3 s.
    assert [row.board_time - row.true_ns // 1000 for row in rest] == [1010, 1020, 1030]


def reasons(board: TickingBoard) -> list[tuple[int, str]]:
    return [(each["seq"], each["reason"]) for each in board.times.take_note().get("alignments", [])]


def test_what_cannot_be_carried_on_begins_anew_and_says_why() -> None:
    board = TickingBoard(Ticks(column="ms"))
    board.say()
    board.wait(5 * SECOND)
    board.say()
    board.up = 0
    assert board.say().board_time == board.now // 1000
    assert reasons(board) == [(2, WENT_BACK)]
    assert reasons(board) == []

    board.wait(SECOND)
    board.say(2 * SECOND)
    assert reasons(board) == [(3, BEHIND)]

    board.up += 10 * SECOND
    board.wait(3 * SECOND)
    board.say()
    assert reasons(board) == [(4, AHEAD)]

    board.received = 0
    board.now -= 60 * SECOND
    board.say()
    assert reasons(board) == [(5, SET_BACK)]

    board.times.restart("traffic is missing")
    board.say()
    assert reasons(board) == [(6, "traffic is missing")]
    assert board.times.summary()["alignments"] == 6


def test_nothing_is_lost_before_the_first_line() -> None:
    board = TickingBoard(Ticks(column="ms"))
    board.times.restart("traffic is missing")
    board.say()
    assert (reasons(board), board.times.summary()["alignments"]) == ([], 1)


def test_ticks_may_be_negative_as_ticks_diff_is() -> None:
    times = BoardTime(Ticks(column="ms"))
    half = 2**29
    given = [half - 2, half - 1, -half, -half + 1]
    told = [times.feed(seq, START + seq * MS, value) for seq, value in enumerate(given)]
    assert told == [START // 1000 + 1000 * seq for seq in range(4)]


def test_a_line_that_came_sooner_says_how_late_the_others_were() -> None:
    board = TickingBoard(Ticks(column="ms"))
    board.say(40 * MS)
    board.wait(100 * MS)
    board.say(5 * MS)
    assert board.times.summary()["corrected_us"] == pytest.approx(35_000, abs=20)


@pytest.mark.parametrize("ppm", [-60, 0, 25])
def test_the_drift_is_measured(ppm: int) -> None:
    board = TickingBoard(Ticks(column="us", unit="us"))
    for index in range(600):
        board.say((index * 7919 % 16) * MS)
        board.wait(SECOND, -ppm)
    assert board.times.summary()["drift_ppm"] == pytest.approx(ppm, abs=1.5)
    assert TickingBoard(Ticks(column="us")).times.summary()["drift_ppm"] is None


def test_a_board_that_prints_nonsense_costs_little() -> None:
    board = TickingBoard(Ticks(column="ms", period=0))
    for index in range(1000):
        board.up = (1000 - index) * MS
        board.say()
    told: Any = board.times.take_note()
    assert len(told["alignments"]) == MAX_LISTED
    assert board.times.summary()["alignments"] == 1000
    assert len(board.times.summary()["begun"]) == MAX_LISTED


def test_a_window_does_not_grow_with_its_lines() -> None:
    board = TickingBoard(Ticks(column="ms", window_seconds=1.0))
    for index in range(5000):
        board.wait(MS)
        board.say(index % 7 * MS)
    assert len(board.times._window._steps) <= STEPS + 1


def test_the_bound_is_known_beforehand() -> None:
    said = BoardTime(Ticks(column="ms", drift_ppm=50, window_seconds=20.0)).metadata()
    assert (said["error_us"], said["late_us"]) == (2002, 1002)
    assert (said["column"], said["unit"], said["period"]) == ("ms", "ms", 2**30)
