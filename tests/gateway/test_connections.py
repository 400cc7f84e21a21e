"""Which clients take nothing of what waits for them."""

from __future__ import annotations

from fastflight.gateway.http.connections import STALL_SECONDS, StalledReaders
from fastflight.transport.tcp_info import SendState


def test_a_byte_in_the_time_is_progress_wherever_it_is_seen() -> None:
    readers: StalledReaders[str] = StalledReaders()
    for number in range(10):  # the process gets rid of some
        assert not readers.is_stalled("slow", (1000 - number, None), number * (STALL_SECONDS - 1))
    for number in range(10):  # the system does, on a thin line
        assert not readers.is_stalled("slow", (1000, SendState(number, True)), number * (STALL_SECONDS - 1))
    assert readers.is_stalled("slow", (1000, SendState(9, True)), 9 * (STALL_SECONDS - 1) + STALL_SECONDS)


def test_who_has_nothing_to_take_takes_its_time() -> None:
    readers: StalledReaders[str] = StalledReaders()
    assert not readers.is_stalled("idle", (1, None), 0.0)
    assert not readers.is_stalled("idle", None, STALL_SECONDS)
    assert not readers.is_stalled("idle", (1, None), STALL_SECONDS)
    assert readers.is_stalled("idle", (1, None), 2 * STALL_SECONDS)


def test_each_has_its_own_time() -> None:
    readers: StalledReaders[str] = StalledReaders()
    assert not readers.is_stalled("first", (1, None), 0.0)
    assert not readers.is_stalled("second", (1, None), 1.0)
    assert readers.is_stalled("first", (1, None), STALL_SECONDS)
    assert not readers.is_stalled("second", (1, None), STALL_SECONDS)
