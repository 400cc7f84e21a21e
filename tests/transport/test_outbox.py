"""The outbox: what is put leaves once and in order, whatever is withdrawn in between."""

from hypothesis import given
from hypothesis import strategies as st

from fastflight.transport.pacing import Outbox


def test_what_the_system_did_not_take_comes_first_again() -> None:
    outbox = Outbox()
    outbox.put(b"abcdef")
    assert outbox.first(4) == b"abcd"
    outbox.drop(1)
    assert outbox.first(4) == b"bcde"
    outbox.drop(4)
    outbox.put(b"gh")
    assert outbox.take(4) == b"fgh"
    assert (len(outbox), outbox.first(4), outbox.take(4)) == (0, b"", b"")


def test_a_call_takes_back_its_own_bytes_and_no_others() -> None:
    outbox = Outbox()
    outbox.put(b"earlier ")
    outbox.drop(3)
    position = outbox.put(b"mine")
    assert outbox.withdraw(position) == 4
    assert outbox.take(100) == b"lier "


def test_a_call_whose_bytes_have_begun_to_go_takes_back_the_rest() -> None:
    outbox = Outbox()
    outbox.put(b"earlier ")
    position = outbox.put(b"mine")
    outbox.drop(10)
    assert outbox.withdraw(position) == 2
    assert len(outbox) == 0


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(1, 16), st.integers(0, 16))))
def test_every_byte_goes_once_and_in_order(steps: list[tuple[bytes, int, int]]) -> None:
    outbox = Outbox()
    gone = bytearray()
    for data, limit, room in steps:
        outbox.put(data)
        chunk = outbox.first(limit)
        gone += chunk[:room]
        outbox.drop(min(room, len(chunk)))
    gone += outbox.take(10_000)
    assert gone == b"".join(data for data, _, _ in steps)


@given(st.binary(max_size=30), st.binary(max_size=30), st.integers(0, 60))
def test_a_withdrawal_never_touches_what_came_before_its_position(before: bytes, own: bytes, taken: int) -> None:
    outbox = Outbox()
    outbox.put(before)
    position = outbox.put(own)
    gone = outbox.take(taken)
    outbox.withdraw(position)
    assert gone + outbox.take(100) == (gone if len(gone) > len(before) else before)
