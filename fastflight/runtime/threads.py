"""The threads of this process, by what they are for.

Where the system says how many there are (Linux), all of them are counted, and what no kind accounts for is `other`:
gRPC's pollers and Arrow's pools. Elsewhere only Python's own threads are.
"""

from __future__ import annotations

import os
import threading
from collections import Counter

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


def by_kind(handlers: int) -> dict[str, int]:
    """How many threads there are, `all` and of each kind; `handlers` are those that serve streams or wait to."""
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
