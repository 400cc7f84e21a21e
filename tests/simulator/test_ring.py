"""The receive ring."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fastflight.simulator.ring import Ring


def test_a_ring_keeps_what_fits() -> None:
    ring = Ring(5)
    assert ring.put(b"abc") == 3
    assert ring.put(b"defg") == 2
    assert ring.put(b"h") == 0
    buffer = bytearray(8)
    assert ring.take_into(memoryview(buffer)) == 5
    assert buffer[:5] == b"abcde"
    assert len(ring) == 0


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=20), st.integers(1, 30))
def test_a_ring_gives_bytes_in_order_whatever_the_pieces(pieces: list[bytes], size: int) -> None:
    ring = Ring(1000)
    for piece in pieces:
        assert ring.put(piece) == len(piece)
    taken = b""
    while len(ring):
        buffer = bytearray(size)
        taken += buffer[: ring.take_into(memoryview(buffer))]
    assert taken == b"".join(pieces)


def test_a_ring_stops_behind_a_control_character() -> None:
    ring = Ring(100)
    ring.put(b"print(1)\x04more")
    stop = re.compile(rb"\x04")
    assert ring.take_until(stop, 5) == b"print"
    assert ring.take_until(stop, 100) == b"(1)\x04"
    assert ring.take_until(stop, 100) == b"more"
