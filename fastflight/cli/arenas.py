"""A server's memory in the C library: two arenas, whatever there are of threads.

glibc makes up to eight arenas for each core, one thread after the other is given one, and what was freed in one is not
used by another. Each Flight stream is a thread: after some hundred answers each arena holds as much free memory as one
busy thread ever needed. Others than glibc know no arenas, and there is nothing to do.
"""

from __future__ import annotations

import ctypes
import os
import sys

import structlog

log = structlog.get_logger(__name__)

# The main one and one more: Python's lock lets one thread at a time allocate, and gRPC's threads need the other.
ARENAS = 2
# Of malloc.h.
M_ARENA_MAX = -8
# In the environment, for all that glibc runs.
OWN, TUNABLES = "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"


def few_arenas() -> None:
    """Set it for this process, before it has many threads. Whoever has set one of `OWN` and `TUNABLES` keeps that."""
    if sys.platform != "linux" or OWN in os.environ or "arena_max" in os.environ.get(TUNABLES, ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    if not mallopt(M_ARENA_MAX, ARENAS):
        log.debug("the number of arenas stays")
