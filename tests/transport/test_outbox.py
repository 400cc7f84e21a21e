"""The outbox: what goes in comes out once and in order, whatever is lent, settled and withdrawn in between."""

from hypothesis import given
from hypothesis import strategies as st

from fastflight.transport.outbox import Outbox


def test_what_was_not_taken_comes_first_again() -> None:
    outbox = Outbox()
    outbox.put(b"abcdef")
    assert outbox.lend(4) == b"abcd"
    outbox.settle(1)
    assert outbox.lend(4) == b"bcde"
    outbox.settle(4)
    outbox.put(b"gh")
    assert outbox.lend(4) == b"fgh"
    outbox.settle(3)
    assert (len(outbox), outbox.taken, outbox.lend(4)) == (0, 8, b"")


def test_a_call_takes_back_its_own_bytes_and_no_others() -> None:
    outbox = Outbox()
    outbox.put(b"earlier ")
    outbox.lend(3)
    outbox.settle(3)
    mark = outbox.put(b"mine")
    assert outbox.withdraw(mark) == 4
    assert outbox.lend(100) == b"lier "


def test_a_call_whose_bytes_have_begun_to_go_takes_back_the_rest() -> None:
    outbox = Outbox()
    outbox.put(b"earlier ")
    mark = outbox.put(b"mine")
    outbox.lend(10)
    outbox.settle(10)
    assert outbox.withdraw(mark) == 2
    assert len(outbox) == 0


def test_what_is_lent_is_beyond_recall_and_does_not_come_again() -> None:
    outbox = Outbox()
    outbox.put(b"stuck and more")
    assert outbox.lend(5) == b"stuck"
    assert outbox.withdraw() == 14
    assert len(outbox) == 0
    outbox.put(b"next")
    outbox.settle(2)
    assert outbox.lend(100) == b"next"


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(1, 16), st.integers(0, 16))))
def test_every_byte_goes_once_and_in_order(steps: list[tuple[bytes, int, int]]) -> None:
    outbox = Outbox()
    gone = bytearray()
    for data, limit, room in steps:
        outbox.put(data)
        chunk = outbox.lend(limit)
        taken = min(room, len(chunk))
        gone += chunk[:taken]
        outbox.settle(taken)
    gone += outbox.lend(10_000)
    assert gone == b"".join(data for data, _, _ in steps)


@given(st.binary(max_size=30), st.binary(max_size=30), st.integers(0, 60))
def test_a_withdrawal_never_touches_what_came_before_its_mark(before: bytes, own: bytes, taken: int) -> None:
    outbox = Outbox()
    outbox.put(before)
    mark = outbox.put(own)
    gone = bytes(outbox.lend(taken))
    outbox.settle(len(gone))
    outbox.withdraw(mark)
    assert gone + outbox.lend(100) == (gone if len(gone) > len(before) else before)
