"""The server's file descriptors: raises their limit, and logs when there are none left.

Each connection and each board's line takes one. Where a process has none left, gRPC accepts no connections and logs
nothing, and a balancer sees a server that does not answer. Call `raise_limit` at the start; enter `watched` to serve.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from fastflight.concurrency.periodic import PeriodicThread
from fastflight.runtime.process import has_descriptors

if sys.platform != "win32":  # which has no such limit
    import resource

log = structlog.get_logger(__name__)

# A shortage that ends sooner has delayed connections, and lost none.
LOOK_SECONDS = 2.0
# Between two lines in the log: under load a shortage comes and goes.
QUIET_SECONDS = 60.0
# The limit to ask for where the system sets none: more than one process serves.
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


class ShortageLog:
    """Logs when there are no descriptors left, once for a shortage and at most once a minute."""

    def __init__(
        self, has_some: Callable[[], bool] = has_descriptors, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._has_some = has_some
        self._clock = clock
        self._short = False
        self._logged: float | None = None

    def look(self) -> None:
        """Check once."""
        had, self._short = not self._short, not self._has_some()
        if not (self._short and had):
            return
        now = self._clock()
        if self._logged is None or now - self._logged >= QUIET_SECONDS:
            self._logged = now
            log.warning("no descriptors are left: connections are not accepted", hint="ulimit -n")


@contextmanager
def watched() -> Iterator[None]:
    """Check regularly, for as long as the block runs."""
    thread = PeriodicThread(ShortageLog().look, LOOK_SECONDS, "descriptors")
    thread.start()
    try:
        yield
    finally:
        thread.close()
