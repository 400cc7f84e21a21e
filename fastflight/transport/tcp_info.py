"""How much of what was written to a TCP connection has reached the other side.

A writer sees only when there is room again, which on a thin line may take minutes in which every byte moves. Linux
counts the acknowledged bytes. Other systems tell nothing (`None`): there a caller has only its own writes to judge by.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

# <linux/tcp.h>, struct tcp_info: eight bytes, 24 words of four, two of eight; then `tcpi_bytes_acked`.
ACKED_OFFSET = 8 + 24 * 4 + 2 * 8
# Of words of four: `tcpi_unacked`, segments that are on their way.
UNACKED_OFFSET = 8 + 4 * 4
# `tcpi_notsent_bytes`: what the system keeps until the other side has room.
NOT_SENT_OFFSET = 8 + 24 * 4 + 4 * 8 + 2 * 4
INFO_BYTES = NOT_SENT_OFFSET + 8


class SendState(NamedTuple):
    """`acknowledged`: bytes that the other side's system has taken. `waits`: whether more bytes wait for it."""

    acknowledged: int
    waits: bool


def send_state(connection: socket.socket) -> SendState | None:
    """The state of what was written to `connection`; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
    except OSError:
        return None
    if len(info) < INFO_BYTES:
        return None
    (acknowledged,) = struct.unpack_from("=Q", info, ACKED_OFFSET)
    (unacknowledged,) = struct.unpack_from("=I", info, UNACKED_OFFSET)
    (not_sent,) = struct.unpack_from("=I", info, NOT_SENT_OFFSET)
    return SendState(acknowledged, bool(unacknowledged or not_sent))
