"""How a process comes to its end: in bounded time, whatever hangs.

`bounded` is put around what is closed: when that has not come to its end in time, the log says what still runs and the
process ends with 1. `leave` is the last word: threads that hang in the operating system (a name that is looked up, a
port that does not open) or in gRPC would keep Python from ending for as long as they do, though nothing is left that
they could spoil.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)

# Beyond `--drain`, to end what did not end by itself: sources' clean-up, boards that are brought back to their REPL,
# files that are synced. All have limits of their own; in most cases they take one or two seconds.
END_SECONDS = 30.0
# For threads that are about to end, having had nothing more to do.
LEAVE_SECONDS = 0.5
# Of Python's own that nobody waits for: they end with the process. Others that still run have hung.
FLIGHT_SHUTDOWN = "flight-shutdown"


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """End the process when the block has not ended after `seconds`."""
    late = threading.Timer(seconds, _end_at_last, (seconds,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def leave() -> None:
    """All is closed: return where Python can end by itself, else end the process with 0."""
    if hung := _hanging():
        try:
            log.warning("threads that hang are left behind", threads=hung)
        finally:
            _exit(0)


def abandon(code: int) -> None:
    """A command is given up: return where Python can end by itself, else end the process with `code`.

    A call that waits for its answer cannot be taken back but by the end of its connection.
    """
    if _hanging():
        _exit(code)


def _hanging() -> list[str]:
    """The threads that are not about to end."""
    deadline = time.monotonic() + LEAVE_SECONDS
    for thread in _hung():
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in _hung()]


def _hung() -> list[threading.Thread]:
    own = threading.current_thread()
    threads = (thread for thread in threading.enumerate() if thread is not own)
    return [thread for thread in threads if not thread.daemon or thread.name == FLIGHT_SHUTDOWN]


def _end_at_last(seconds: float) -> None:
    threads = sorted(thread.name for thread in threading.enumerate())
    try:
        log.error("it did not come to its end and is ended", seconds=seconds, threads=threads)
    finally:
        _exit(1)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(code)
