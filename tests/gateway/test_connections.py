"""Which clients take nothing of what waits for them."""

from __future__ import annotations

from fastflight.gateway.http.connections import STALL_SECONDS, Unread
from fastflight.transport.tcp_info import SendState


def test_a_byte_in_the_time_is_progress_wherever_it_is_seen() -> None:
    unread: Unread[str] = Unread()
    for number in range(10):  # the process gets rid of some
        assert not unread.is_stalled("slow", (1000 - number, None), number * (STALL_SECONDS - 1))
    for number in range(10):  # the system does, on a thin line
        assert not unread.is_stalled("slow", (1000, SendState(number, True)), number * (STALL_SECONDS - 1))
    assert unread.is_stalled("slow", (1000, SendState(9, True)), 9 * (STALL_SECONDS - 1) + STALL_SECONDS)


def test_who_has_nothing_to_take_takes_its_time() -> None:
    unread: Unread[str] = Unread()
    assert not unread.is_stalled("idle", (1, None), 0.0)
    assert not unread.is_stalled("idle", None, STALL_SECONDS)
    assert not unread.is_stalled("idle", (1, None), STALL_SECONDS)
    assert unread.is_stalled("idle", (1, None), 2 * STALL_SECONDS)


def test_each_has_its_own_time() -> None:
    unread: Unread[str] = Unread()
    assert not unread.is_stalled("first", (1, None), 0.0)
    assert not unread.is_stalled("second", (1, None), 1.0)
    assert unread.is_stalled("first", (1, None), STALL_SECONDS)
    assert not unread.is_stalled("second", (1, None), STALL_SECONDS)
