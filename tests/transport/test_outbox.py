"""The outbox: what is put leaves once and in order, whatever is withdrawn in between."""

from hypothesis import given
from hypothesis import strategies as st

from fastflight.transport.pacing import Outbox


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 16))))
def test_every_byte_goes_once_and_in_order(steps: list[tuple[bytes, int]]) -> None:
    outbox = Outbox()
    gone = b""
    for data, limit in steps:
        outbox.put(data)
        gone += outbox.take(limit)
    gone += outbox.take(10_000)
    assert gone == b"".join(data for data, _ in steps)


@given(st.binary(max_size=30), st.binary(max_size=30), st.integers(0, 60))
def test_a_withdrawal_never_touches_what_came_before_its_position(before: bytes, own: bytes, taken: int) -> None:
    outbox = Outbox()
    outbox.put(before)
    position = outbox.put(own)
    gone = outbox.take(taken)
    outbox.withdraw(position)
    assert gone + outbox.take(100) == (gone if len(gone) > len(before) else before)
