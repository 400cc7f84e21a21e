"""How a serial port's asynchronous writes are gathered and handed to the system, and the defaults of each platform."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Writer = Literal["asyncio", "thread"]
WRITERS: tuple[Writer, ...] = get_args(Writer)


@dataclass(frozen=True, slots=True)
class Pacing:
    """Small writes wait until `drain` bytes or `drain_ms` milliseconds are together, or somebody waits for an answer.

    At most `chunk` bytes go to the system in one call. `writer` is what makes that call: the event loop when the
    port has room, or a thread that blocks in it.
    """

    drain: int
    drain_ms: int
    chunk: int
    writer: Writer


# By `os.name`.
#
# posix: a system call costs about 2 us, so little is won by gathering more than a quarter of the line's 4096-byte
# buffer, and 50 ms is short beside a person and long beside code that sends its frame in pieces. A chunk fills that
# buffer. Event loops watch the descriptor.
#
# nt: a write is a round trip through the driver, of up to a USB frame: gather twice as much for twice as long. Event
# loops cannot watch a COM port, and pyserial-asyncio asks it 2000 times a second; a thread sleeps until bytes come.
PLATFORMS: Mapping[str, Pacing] = {
    "posix": Pacing(drain=1024, drain_ms=50, chunk=4096, writer="asyncio"),
    "nt": Pacing(drain=2048, drain_ms=100, chunk=4096, writer="thread"),
}
DEFAULT = PLATFORMS.get(os.name, PLATFORMS["posix"])

# What a device URL may ask for: least and most.
#
# drain: 1 sends each write at once; more than the system's own largest buffers only delays.
# drain_ms: 0 sends at the loop's next turn; a second is already longer than most boards' patience.
# chunk: below 16 bytes system calls are all there is; above 64 KiB a thread could not be called back in time.
LIMITS: Mapping[str, tuple[int, int]] = {
    "drain": (1, 64 * 1024),
    "drain_ms": (0, 1000),
    "chunk": (16, 64 * 1024),
}
