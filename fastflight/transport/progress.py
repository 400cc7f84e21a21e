"""What the other side of a TCP connection has taken, as the operating system knows it.

Whoever writes sees only when there is room again, which for a thin line may be minutes in which every byte moves. Linux
counts what was acknowledged; elsewhere nothing is known (`None`), and who asks has its own writes alone to judge by.
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
# Up to `tcpi_notsent_bytes`, which begins there: what the system keeps until the other side has room.
NOT_SENT_OFFSET = 8 + 24 * 4 + 4 * 8 + 2 * 4
INFO_BYTES = NOT_SENT_OFFSET + 8


class Taken(NamedTuple):
    """`acknowledged`: bytes that the other side's system has taken, so far. `waits`: whether there are more for it."""

    acknowledged: int
    waits: bool


def taken(connection: socket.socket) -> Taken | None:
    """What was taken of what was written to `connection`. None where the system does not say."""
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
    return Taken(acknowledged, bool(unacknowledged or not_sent))
