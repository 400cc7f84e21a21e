"""What this process uses of its computer. Where the system does not say (it is not Linux), there is less of it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fastflight.runtime.metrics import Sample

_PROCESS = Path("/proc/self")
# Nearly every process has it. Where it is not open that is no shortage.
_ANY = 2


def figures() -> Iterator[Sample]:
    """Memory, descriptors, processor time."""
    yield Sample("process_cpu_seconds_total", round(time.process_time(), 3))
    try:
        pages = int((_PROCESS / "statm").read_text().split()[1])
        yield Sample("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
        kinds = [_target(entry) for entry in (_PROCESS / "fd").iterdir()]
    except (OSError, ValueError, AttributeError):
        return
    yield Sample("process_open_fds", len(kinds) - 1)  # but for the one that lists them
    yield Sample("process_open_sockets", sum(kind.startswith("socket:") for kind in kinds))
    yield Sample("process_max_fds", _most_descriptors())


def has_descriptors() -> bool:
    """Whether it may open one more: a connection, a file, a line."""
    try:
        os.close(os.dup(_ANY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:  # it was closed meanwhile
        return ""


def _most_descriptors() -> int:
    import resource  # there is none on Windows, which has no /proc either

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
