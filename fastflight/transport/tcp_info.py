"""Tells how much of the data written to a TCP connection has reached the other side.

A writer only sees when there is room again. On a slow line this may take minutes, although bytes move all the time.
Linux counts the acknowledged bytes. For other systems the result is None: there a caller can only judge by its own
writes.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

# <linux/tcp.h>, struct tcp_info: 8 bytes, 24 words of 4 bytes, 2 words of 8 bytes; then `tcpi_bytes_acked`.
ACKED_OFFSET = 8 + 24 * 4 + 2 * 8
# `tcpi_unacked`, segments that are sent and not acknowledged: one of the words of 4 bytes.
UNACKED_OFFSET = 8 + 4 * 4
# `tcpi_notsent_bytes`: bytes that the system has not sent yet.
NOT_SENT_OFFSET = 8 + 24 * 4 + 4 * 8 + 2 * 4
INFO_BYTES = NOT_SENT_OFFSET + 8


class SendState(NamedTuple):
    """How much of the written data has arrived.

    `acknowledged`: how many bytes the other side's system has received so far. `waits`: whether more were written.
    """

    acknowledged: int
    waits: bool


def send_state(connection: socket.socket) -> SendState | None:
    """Return the state of the data written to `connection`; None if the system does not tell."""
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
