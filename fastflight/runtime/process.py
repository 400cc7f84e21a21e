"""What this process has open: its descriptors, and its threads by what they are for.

Linux lists all threads of a process. Threads that Python did not start, as gRPC's and Arrow's, count as `other` there.
Elsewhere only Python's own threads are counted.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
# Nearly every process has it. Where it is not open there is no shortage.
_ANY = 2
# A directory with an entry for each thread.
TASKS = "/proc/self/task"
# Part of a thread's name, and its kind; the first that fits. A stream is a thread of its own, and some have another.
KINDS = (
    ("-offload", "offload"),
    ("-watchdog", "watchers"),
    ("deadlines", "watchers"),
    ("shard-", "shards"),
    ("acks", "beside_handlers"),
    ("upload-writer", "beside_handlers"),
    ("interruption", "beside_handlers"),
    ("exchange-input", "beside_handlers"),
    ("session-input", "beside_handlers"),
    ("held-line", "beside_handlers"),
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
    """How many of the open descriptors are sockets; None where the system does not say."""
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
    """How many threads there are, in `all` and of each kind. `handlers`: those that serve streams or wait to."""
    counts = Counter({"handlers": handlers})
    for thread in threading.enumerate():
        # A handler's thread is not Python's own, but may be known to it.
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
