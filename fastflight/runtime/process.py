"""Counts the descriptors and threads of this process.

Linux lists all threads of a process. Threads that Python did not start, such as those of gRPC and Arrow, count as
`other` there. On other systems only Python's own threads are counted.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
# A descriptor (stderr) that nearly every process has. If it is not open, descriptors are not scarce.
_ANY = 2
# A directory with an entry for each thread.
TASKS = "/proc/self/task"
# A part of a thread's name, and the thread's kind; the first match counts. Each stream has a handler's thread, and some
# have another one beside it.
KINDS = (
    ("-offload", "offload"),
    ("-watchdog", "watchers"),
    ("deadlines", "watchers"),
    ("memory-return", "watchers"),
    ("shard-", "shards"),
    ("acks", "beside_handlers"),
    ("upload-writer", "beside_handlers"),
    ("interruption", "beside_handlers"),
    ("exchange-input", "beside_handlers"),
    ("serial ", "lines"),
    ("log-", "recordings"),
    ("recordings-", "recordings"),
    ("gateway", "gateway"),
    ("MainThread", "main"),
)


def has_descriptors() -> bool:
    """Whether the process may open one more descriptor: a connection, a file, a line."""
    try:
        os.close(os.dup(_ANY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def open_sockets() -> int | None:
    """Return how many of the open descriptors are sockets; None if the system does not list them."""
    try:
        return sum(_target(entry).startswith("socket:") for entry in DESCRIPTORS.iterdir())
    except OSError:
        return None


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:  # it was closed meanwhile
        return ""


def threads_by_kind(handlers: int) -> dict[str, int]:
    """Return how many threads there are, in `all` and of each kind.

    `handlers` is the number of threads that serve streams or calls, or wait to do so.
    """
    counts = Counter({"handlers": handlers})
    for thread in threading.enumerate():
        # Python did not start the threads of handlers, but may list them as dummy threads. They are counted already.
        if not isinstance(thread, threading._DummyThread):
            counts[_kind(thread.name)] += 1
    known = counts.total()
    try:
        everything = max(known, len(os.listdir(TASKS)))
    except OSError:
        everything = known
    counts["other"] += everything - known
    return {"all": everything, **counts}


def _kind(name: str) -> str:
    return next((kind for part, kind in KINDS if part in name), "other")
