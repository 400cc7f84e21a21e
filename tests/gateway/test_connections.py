"""Whether a client takes nothing of what waits for it."""

from __future__ import annotations

import asyncio

from fastflight.gateway.http.connections import STALL_SECONDS, Connection
from fastflight.transport.tcp_info import SendState


def test_a_byte_in_the_time_is_progress_wherever_it_is_seen() -> None:
    slow = Connection(asyncio.Transport())
    for number in range(10):  # the process gets rid of some
        assert not slow.is_stalled((1000 - number, None), number * (STALL_SECONDS - 1))
    for number in range(10):  # the system does, on a thin line
        assert not slow.is_stalled((1000, SendState(number, True)), (10 + number) * (STALL_SECONDS - 1))
    assert slow.is_stalled((1000, SendState(9, True)), 19 * (STALL_SECONDS - 1) + STALL_SECONDS)


def test_a_client_for_which_nothing_waits_takes_its_time() -> None:
    idle = Connection(asyncio.Transport())
    assert not idle.is_stalled((1, None), 0.0)
    assert not idle.is_stalled(None, STALL_SECONDS)
    assert not idle.is_stalled((1, None), STALL_SECONDS)
    assert idle.is_stalled((1, None), 2 * STALL_SECONDS)
