"""Confines a board's process, so that board code cannot reach beyond it even if it takes over the simulator.

CPython is no sandbox: code in it can do everything that its process can. So the process permanently gives up all rights
that it does not need. Call `enter` after the imports and before the first thread, and `seal` when all threads run.

On Linux with Landlock, the process gives up files outside its folder (except for reading Python's library), the
network, other programs and other processes. On every Linux it gives up privileges, and has limits on memory, open files
and the size of a file. On other systems it gives up nothing: board code has the rights of the user who runs the
process. `missing` returns the reason to show to users.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

from fastflight.simulator import landlock, syscalls

if sys.platform == "linux":
    import resource

# Bytes that the process may allocate after its start: the stacks of threads, and far more data than a board holds.
MEMORY = 512 << 20
# Open files: far more than a board needs, and too few to harm the computer.
DESCRIPTORS = 128
PR_SET_NO_NEW_PRIVS = 38
CAPABILITIES_VERSION = 0x2008_0522
# The only capability that stays: root needs it for a folder that another user owns.
CAP_DAC_OVERRIDE = 1
LINUX = sys.platform == "linux"


def missing() -> str | None:
    """Return why board code cannot be confined on this system, or None if it can."""
    if not LINUX:
        return f"there is no Landlock on {sys.platform}"
    if not landlock.version():
        return "this kernel has no Landlock"
    if not syscalls.is_supported():
        return "no filter of system calls is known for this processor or kernel"
    return None


def enter(
    root: str,
    *,
    file_size: int,
    memory: int = 0,
    keep: frozenset[int] = frozenset(),
    readable: Sequence[str] = (),
) -> None:
    """Confine this thread, and the threads that it starts, to the folder `root`. Raises `OSError`.

    `file_size` is the largest size of a file in bytes. `memory` bytes may be allocated in addition to `MEMORY`. The
    standard streams that are not in `keep` are replaced by the null device: board code could otherwise write keystrokes
    into a terminal, for its user's shell. The folders in `readable`, as far as they exist, may be read.
    """
    with open(os.devnull, "r+b", buffering=0) as nothing:
        if LINUX:
            _restrict(root, file_size, memory, readable)
        # On every system, because a board would block when its warnings fill a pipe that nobody reads.
        for stream in {0, 1, 2} - keep:
            os.dup2(nothing.fileno(), stream)


def _restrict(root: str, file_size: int, memory: int, readable: Sequence[str]) -> None:
    """Do what `enter` does only on Linux."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_size)
    _limit(resource.RLIMIT_AS, _address_space() + MEMORY + memory)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if landlock.version():
        # Python's library stays readable, because codecs are imported on first use.
        reading = (os.path.dirname(os.__file__), *filter(os.path.isdir, readable))
        landlock.restrict({os.path.realpath(root): landlock.CHANGE, **dict.fromkeys(reading, landlock.READ)})
    _drop_capabilities(library)
    if syscalls.is_supported():
        syscalls.refuse()


def seal() -> None:
    """Forbid new threads and processes. Only on Linux.

    The limit on threads has no effect for root: then only new processes are forbidden, by the filter of `syscalls`.
    """
    if LINUX:
        _limit(resource.RLIMIT_NPROC, 0)


def _limit(what: int, value: int) -> None:
    """Set a limit that cannot be raised again. Keep it if it is already lower."""
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _address_space() -> int:
    """Return the size of the address space in use, in bytes: some interpreters reserve a lot. 0 without `/proc`."""
    try:
        with open("/proc/self/statm") as sizes:
            return int(sizes.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _drop_capabilities(library: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    # Effective, permitted and inheritable, of capabilities 0 to 31 and then of the others.
    sets = (ctypes.c_uint32 * 6)()
    _check(library.capget(header, sets))
    kept = sets[1] & 1 << CAP_DAC_OVERRIDE
    _check(library.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)))


def _check(result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
