"""What becomes of one way's bytes: the same, however they are divided."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos import Break, Course, Fault, Kind, Pass, Step, Wait, Way, drawn

DATA = bytes(range(200))


def passed(steps: list[Step]) -> bytes:
    return b"".join(step.data for step in steps if isinstance(step, Pass))


def fed(spec: str, data: bytes = DATA) -> list[Step]:
    return list(Course([Fault.parse(spec)]).feed(data))


def test_without_faults_all_passes_in_one_piece() -> None:
    assert list(Course().feed(DATA)) == [Pass(DATA)]


def test_a_bit_is_flipped_where_it_was_said() -> None:
    expected = bytearray(DATA)
    expected[5] ^= 0x10
    assert passed(fed("flip:out@5=4")) == bytes(expected)


def test_it_breaks_after_so_many_bytes() -> None:
    assert fed("cut:out@5") == [Pass(DATA[:5]), Break(Fault(Kind.CUT, Way.OUT, 5))]


def test_nothing_passes_after_it_broke() -> None:
    course = Course([Fault.parse("end:out@5")])
    assert passed(list(course.feed(DATA))) == DATA[:5]
    course.mend()
    assert list(course.feed(DATA)) == []


def test_a_pause_lets_all_pass_in_the_end() -> None:
    assert fed("pause:out@5=2") == [Pass(DATA[:5]), Wait(2), Pass(DATA[5:])]


def test_pieces_are_of_the_size_that_was_said_or_odd() -> None:
    ones = fed("slice:out@190=1")
    assert ones == [Pass(DATA[:190]), *(Pass(DATA[i : i + 1]) for i in range(190, 200))]
    odd = fed("slice:out@0=0")
    assert passed(odd) == DATA and len(odd) > 3


def test_a_pace_is_kept() -> None:
    steps = fed("throttle:out@0=1000")
    assert passed(steps) == DATA
    assert abs(sum(step.seconds for step in steps if isinstance(step, Wait)) - 0.2) < 1e-9


def test_a_delay_is_that_of_each_piece() -> None:
    course = Course([Fault.parse("delay:out@0=0.5")])
    assert [*course.feed(b"ab"), *course.feed(b"c")] == [Wait(0.5), Pass(b"ab"), Wait(0.5), Pass(b"c")]


def test_counts_begin_when_a_fault_is_given_and_mending_ends_all() -> None:
    told: list[Fault] = []
    course = Course(told=told.append)
    assert passed(list(course.feed(b"abc"))) == b"abc"
    course.strike([Fault.parse("flip:out@1=0"), Fault.parse("cut:out@9")])
    assert passed(list(course.feed(b"def"))) == b"ddf"
    assert [fault.kind for fault in told] == [Kind.FLIP]
    course.mend()
    assert list(course.feed(DATA)) == [Pass(DATA)]


@given(st.lists(st.sampled_from(Kind), max_size=5), st.integers(0, 2**16), st.lists(st.integers(1, 60)))
def test_any_division_gives_the_same_bytes_and_the_same_end(kinds: list[Kind], seed: int, sizes: list[int]) -> None:
    chance = random.Random(seed)
    faults = [drawn(chance, kind, 250, 1) for kind in kinds]
    whole = list(Course(faults).feed(DATA))
    course, divided, rest = Course(faults), list[Step](), DATA
    for size in [*sizes, len(DATA)]:
        piece, rest = rest[:size], rest[size:]
        divided += course.feed(piece)
        if divided and isinstance(divided[-1], Break):
            break
    assert passed(divided) == passed(whole)
    assert [step for step in divided if isinstance(step, Break)] == [step for step in whole if isinstance(step, Break)]
