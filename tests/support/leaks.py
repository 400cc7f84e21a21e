"""What a test left behind: open descriptors, threads, child processes.

Take `held()` before, and ask `leaked(before)` after: it gives a line for each thing that is held now and was not held
then, or nothing. Things that are on their way out (a thread that is ending, a socket that gRPC closes on a thread of
its own) are waited for, up to `GRACE_SECONDS`; a clean test does not wait at all.

Descriptors and children are seen on Linux only. Daemon threads are not counted, since they hold nobody up, and neither
is what these libraries keep for the life of the process: SQLite's descriptors of a database, gRPC's pollers (`eventfd`
and `epoll` descriptors, counted while `pyarrow.flight` is not loaded), the helper process of `multiprocessing`, and the
processes that are forked for commands and boards.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Generous, since only a test that is about to fail waits this long.
GRACE_SECONDS = 10.0
# The first pause between two looks; each is twice as long as the one before.
PAUSE_SECONDS = 0.01

_PROCESS = "/proc/self"
# Thousands of process ids.
_MOST_BYTES = 1 << 16
_POLLERS = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")
# Of a connection that is closed while others of this process are open. What a connection keeps beside it still counts.
_DATABASE = "/recordings.db"
# libuv opens one for a loop when that makes its first stream, and keeps it until the loop is closed: it closes it to
# have a descriptor for a connection that it must refuse.
_SPARE = "/dev/null"
# Of a font: matplotlib keeps some open for each thread that has drawn text.
_FONT = ".ttf"
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
# Process ids of helpers of the tests: what is forked from them has the same command.
helpers: set[int] = set()


@dataclass(frozen=True, slots=True)
class Held:
    """Descriptors with what they refer to, threads, and the process ids of children, at `ticks` since the boot."""

    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    ticks: int


def held() -> Held:
    """What this process holds now."""
    threads = frozenset(thread for thread in threading.enumerate() if not thread.daemon)
    return Held(_descriptors(), threads, _children(), _ticks())


def leaked(before: Held, within: float | None = None) -> list[str]:
    """A line for each thing that is held now and was not `before`, once nothing has gone away `within` seconds.

    By default these are `GRACE_SECONDS`.
    """
    deadline = time.monotonic() + (GRACE_SECONDS if within is None else within)
    pause = PAUSE_SECONDS
    while (lines := _new(before)) and time.monotonic() < deadline:
        time.sleep(pause)
        pause *= 2
        # What has ended by now, as a daemon thread that is in no list, may hold the rest in reference cycles.
        gc.collect()
    return lines


def _new(before: Held) -> list[str]:
    now = held()
    return [
        *(
            f"descriptor {number}: {target}{_ends(target)}"
            for number, target in sorted(now.descriptors - before.descriptors)
        ),
        *(f"thread {thread.name!r}" for thread in now.threads - before.threads),
        *(
            f"child process {pid}: {_command(pid)}"
            for pid in sorted(now.children - before.children)
            # While the thread that has started one ends, it may be in no list, and was not seen.
            if _started(pid) >= before.ticks
        ),
    ]


def _descriptors() -> frozenset[tuple[int, str]]:
    # Plain paths and calls: this runs twice for each test, and a server has dozens of descriptors and threads.
    try:
        numbers = os.listdir(f"{_PROCESS}/fd")
    except OSError:
        return frozenset()
    ignored = _POLLERS if "pyarrow.flight" in sys.modules else ()
    found: set[tuple[int, str]] = set()
    for number in numbers:
        try:
            target = os.readlink(f"{_PROCESS}/fd/{number}")
        except OSError:
            continue  # The descriptor that listed the folder, or one that was closed meanwhile.
        if (
            target not in ignored
            and not target.startswith("/proc/")
            and not target.endswith((_DATABASE, _SPARE, _FONT))
        ):
            found.add((int(number), target))
    return frozenset(found)


def _ends(target: str) -> str:
    """Where a TCP socket leads, so that its owner can be found."""
    inode = target.removeprefix("socket:[").removesuffix("]")
    for listing in (Path(_PROCESS, "net/tcp"), Path(_PROCESS, "net/tcp6")):
        try:
            rows = [row.split() for row in listing.read_text().splitlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[9] == inode:
                here, there = (int(end.rpartition(":")[2], 16) for end in row[1:3])
                return f", TCP from port {here} to {there}, state {int(row[3], 16)}"
    return ""


def _children() -> frozenset[int]:
    try:
        threads = os.listdir(f"{_PROCESS}/task")
    except OSError:
        return frozenset()
    found: set[int] = set()
    for thread in threads:
        try:
            listing = os.open(f"{_PROCESS}/task/{thread}/children", os.O_RDONLY)
        except OSError:
            continue  # The thread ended meanwhile; its children are listed under another one.
        try:
            found.update(map(int, os.read(listing, _MOST_BYTES).split()))
        except OSError:
            pass
        finally:
            os.close(listing)
    return frozenset(pid for pid in found - helpers if not any(helper in _command(pid) for helper in _HELPERS))


def _ticks() -> int:
    if not os.path.isdir(_PROCESS):
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _started(pid: int) -> int:
    """When a process began, in ticks since the boot."""
    try:
        # What comes first, its name, is in parentheses and may hold any character.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except OSError:
        return 0  # it has ended meanwhile


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    return b" ".join(words).decode(errors="replace").strip() or "ended, not waited for"
