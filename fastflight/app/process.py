"""The process of a server: limits on descriptors and memory, the signals that end it, and an end in bounded time.

Call `raise_limit`, `limit_arenas` and `collect_rarely` at the start. While serving, enter `watch_process`, and wait
with what `stop_signal` gives. Put `end_within` around closing, and call `leave` last: a thread that hangs in the
operating system (a name lookup, a port that does not open) or in gRPC would otherwise keep the process alive.

Each connection and each board's line takes a descriptor. A process that has none left accepts no connections, and gRPC
logs nothing about it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import cast

import structlog

from fastflight.concurrency.threads import PeriodicThread
from fastflight.runtime.process import has_descriptors

if sys.platform != "win32":  # Windows has no limit on descriptors
    import resource

log = structlog.get_logger(__name__)

# The signal at which a server reads its fleet file again. Windows has none.
HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)

# How often the descriptors are checked. A shorter shortage delays connections and loses none.
CHECK_SECONDS = 2.0
# At least this long between two warnings: under load a shortage comes and goes.
QUIET_SECONDS = 60.0
# The limit to ask for where the system sets none.
ENOUGH = 1_048_576

# glibc makes eight arenas for each core, and the memory that a thread frees stays in its arena. Each Flight stream is a
# thread, so every arena ends up with the free memory of a busy one. Two are enough: the interpreter's lock lets one
# thread at a time allocate, and gRPC's threads use the other.
ARENAS = 2
M_ARENA_MAX = -8  # of malloc.h
# glibc keeps free memory that lies between used blocks, and under a mixed load there is ever more of it: `malloc_trim`
# returns it to the system this often, in a few milliseconds (docs/decisions/0035-a-servers-memory.md).
TRIM_SECONDS = 10.0
# The rows of a thousand boards are ten thousand objects a second, which live for a moment. With Python's own threshold
# (700) each such moment is searched for cycles, and with it, again and again, the whole heap: with a thousand boards a
# tenth of the processor time, and pauses of a quarter of a second.
NEW_OBJECTS = 50_000

# Beyond `--drain`: what did not end by itself is stopped, boards go back to their REPL, files are synced. Each of these
# has a limit of its own; together they usually take one or two seconds.
END_SECONDS = 30.0
# For threads that are about to end.
LEAVE_SECONDS = 0.5
POLL_SECONDS = 0.005
# A daemon thread that must have ended all the same. Other daemon threads end with the process.
FLIGHT_SHUTDOWN = "flight-shutdown"


def raise_limit() -> None:
    """Raise the limit on descriptors of this process and its children to the most that needs no privilege."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has a lower limit of its own
        log.info("the limit on descriptors stays", limit=soft, wanted=wanted, reason=str(error))


def limit_arenas() -> None:
    """Have glibc use `ARENAS` arenas. Does nothing with another C library, or if the environment sets the number."""
    mallopt = _glibc("mallopt", "MALLOC_ARENA_MAX", "arena_max")
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def collect_rarely() -> None:
    """Have Python look for cycles of garbage when there are `NEW_OBJECTS` more objects than at the last look."""
    gc.set_threshold(NEW_OBJECTS)


def _glibc(function: str, variable: str, tunable: str) -> Callable[..., int] | None:
    """Return a function of glibc; None with another C library, or if the environment has the setting for it."""
    if sys.platform != "linux" or variable in os.environ or tunable in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        return cast(Callable[..., int], getattr(ctypes.CDLL(None), function))
    except (OSError, AttributeError):
        return None


class ShortageLog:
    """Warns when there are no descriptors left: once for each shortage, and at most once a minute."""

    def __init__(
        self, has_some: Callable[[], bool] = has_descriptors, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._has_some = has_some
        self._clock = clock
        self._is_short = False
        self._warned_at: float | None = None

    def check(self) -> None:
        """Look once."""
        was_short, self._is_short = self._is_short, not self._has_some()
        if was_short or not self._is_short:
            return
        now = self._clock()
        if self._warned_at is None or now - self._warned_at >= QUIET_SECONDS:
            self._warned_at = now
            log.warning("no descriptors are left: connections are not accepted", hint="ulimit -n")


def memory_trim() -> Callable[[], object] | None:
    """Return a function that returns free memory to the system; None if the environment has a setting for that."""
    trim = _glibc("malloc_trim", "MALLOC_TRIM_THRESHOLD_", "trim_threshold")
    return None if trim is None else partial(trim, 0)


@contextmanager
def watch_process() -> Iterator[None]:
    """Check the descriptors and return free memory regularly, for as long as the block runs."""
    threads = [PeriodicThread(ShortageLog().check, CHECK_SECONDS, "descriptor-watchdog")]
    if (trim := memory_trim()) is not None:
        threads.append(PeriodicThread(trim, TRIM_SECONDS, "memory-return"))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.close()


@contextmanager
def stop_signal(*, hangup: bool = False) -> Iterator[Callable[[], int]]:
    """Give a function that waits for a signal and returns its number: SIGINT or SIGTERM, and `HANGUP` with `hangup`.

    A second SIGINT or SIGTERM has its default effect. A hang-up because the terminal of the process was closed counts
    as SIGTERM, unless the process was started to ignore that (nohup).
    """
    # The system may deliver a signal to any thread, also one of gRPC's. Python runs the handler in the main thread,
    # which then wakes only by reading from this pipe.
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def restore_default(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)

    signal.signal(signal.SIGINT, restore_default)
    signal.signal(signal.SIGTERM, restore_default)
    ends_with_terminal = False
    if hangup and HANGUP is not None:
        ends_with_terminal = signal.signal(HANGUP, lambda *_: None) is not signal.SIG_IGN and _has_terminal()

    def wait() -> int:
        number = os.read(read_end, 1)[0]
        return signal.SIGTERM if number == HANGUP and ends_with_terminal and not _has_terminal() else number

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(-1)
        os.close(read_end)
        os.close(write_end)


def _has_terminal() -> bool:
    """Whether the process has a terminal, which would end it when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def end_within(seconds: float) -> Iterator[None]:
    """Log what still runs and end the process with 1 if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, _end_late, (seconds,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave() -> None:
    """Everything is closed: return if Python can end by itself, else log what hangs and end the process with 0."""
    if hung := _wait_for_threads():
        try:
            log.warning("threads that hang are left behind", threads=hung)
        finally:
            _exit(0)


def abandon(code: int) -> None:
    """Give up a command: return if Python can end by itself, else end the process with `code`.

    A Flight call that waits for its answer can only be cancelled by closing its connection.
    """
    if _wait_for_threads():
        _exit(code)


def _wait_for_threads() -> list[str]:
    """Give threads a moment to end, and return the names of those that did not."""
    deadline = time.monotonic() + LEAVE_SECONDS
    # Not by `join`: a thread that is about to start, or whose start was interrupted, cannot be joined.
    while (threads := _blocking_threads()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return [thread.name for thread in threads]


def _blocking_threads() -> list[threading.Thread]:
    """The threads for which Python would wait at exit, and Flight's shutdown."""
    own = threading.current_thread()
    threads = (thread for thread in threading.enumerate() if thread is not own)
    return [thread for thread in threads if not thread.daemon or thread.name == FLIGHT_SHUTDOWN]


def _end_late(seconds: float) -> None:
    threads = sorted(thread.name for thread in threading.enumerate())
    try:
        log.error("the process did not end in time and is ended", seconds=seconds, threads=threads)
    finally:
        _exit(1)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader has gone, or it is closed
            stream.flush()
    os._exit(code)
