"""A server's descriptors: as many as the system lets it have, and a line in the log when there are none left.

Each connection and each board's line is one. Where a process has none left, gRPC leaves connections unaccepted and says
nothing, and a balancer sees a server that does not answer. `raise_limit` at the start; `watched` while it serves.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from fastflight.runtime.process import has_descriptors

if sys.platform != "win32":  # which has no such limit
    import resource

log = structlog.get_logger(__name__)

# Between two looks: a shortage that is over sooner has delayed connections, and lost none.
LOOK_SECONDS = 2.0
# Between two lines about it, as it comes and goes under load.
QUIET_SECONDS = 60.0
# What is asked for where the system sets no limit: more than one process serves.
ENOUGH = 1_048_576


def raise_limit() -> None:
    """Let this process, and those that it starts, have as many as the system allows without a privilege."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has a lower one of its own beside it
        log.info("the limit on descriptors stays", limit=soft, wanted=wanted, reason=str(error))


class Lookout:
    """Says in the log when there are no descriptors left, once for a shortage and at most once a minute."""

    def __init__(
        self, has_some: Callable[[], bool] = has_descriptors, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._has_some = has_some
        self._clock = clock
        self._short = False
        self._told: float | None = None

    def look(self) -> None:
        """Once more."""
        had, self._short = not self._short, not self._has_some()
        if not (self._short and had):
            return
        now = self._clock()
        if self._told is None or now - self._told >= QUIET_SECONDS:
            self._told = now
            log.warning("no descriptors are left: connections are not accepted", hint="ulimit -n")


@contextmanager
def watched() -> Iterator[None]:
    """Look now and then, for as long as the block runs."""
    over, lookout = threading.Event(), Lookout()

    def run() -> None:
        while not over.wait(LOOK_SECONDS):
            lookout.look()

    thread = threading.Thread(target=run, name="descriptors", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
