"""A server's memory in the C library: two arenas, and what is free in them goes back to the system.

glibc makes up to eight arenas for each core, one thread after the other is given one, and what was freed in one is not
used by another. Each Flight stream is a thread: after some hundred answers each arena holds as much free memory as one
busy thread ever needed. And what is free stays with the process unless it is at an arena's very end: with each piece
that lies in between an arena grows a little, and never shrinks. Other allocators give back what was not used for ten
seconds; here `malloc_trim` is called as often, which takes a few milliseconds
(docs/decisions/0035-a-servers-memory.md). Others than glibc have neither, and there is nothing to do.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

# The main one and one more: Python's lock lets one thread at a time allocate, and gRPC's threads need the other.
ARENAS = 2
TRIM_SECONDS = 10.0
# Of malloc.h.
M_ARENA_MAX = -8
# In the environment, for all that glibc runs.
OWN_ARENAS, OWN_TRIM, TUNABLES = "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"


def hold_little() -> None:
    """Set it for this process, before it has many threads. Whoever has set one of these in the environment keeps it."""
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim
    except (OSError, AttributeError):  # another C library
        return
    tunables = os.environ.get(TUNABLES, "")
    if OWN_ARENAS not in os.environ and "arena_max" not in tunables and not mallopt(M_ARENA_MAX, ARENAS):
        log.debug("the number of arenas stays")
    if OWN_TRIM not in os.environ and "trim_threshold" not in tunables:
        threading.Thread(target=_trimming, args=(trim,), name="malloc-trim", daemon=True).start()


def _trimming(trim: Callable[[int], int]) -> None:
    never = threading.Event()
    while not never.wait(TRIM_SECONDS):
        trim(0)
