"""The walls around a board's process: what code on it can reach, even if it takes the simulator over.

CPython is no sandbox: code that runs in it can get at everything that its process can. So the process gives up what it
does not need, for good, after its imports and before its first thread: `enter`. Then `seal` once its threads run.

On Linux with Landlock: files outside its folder (but for Python's library, to read), the network, other programs, other
processes. On every Linux: privileges, and memory, open files and the size of a file beyond a limit. On other systems
nothing: there code on a board has the rights of the user whose process it is. `missing` says what to tell people.
"""

from __future__ import annotations

import ctypes
import os
import sys

from fastflight.simulator import landlock, syscalls

if sys.platform == "linux":
    import resource

# What the process may take beyond what it has when it starts: threads' stacks, and far more data than a board holds.
MEMORY = 512 << 20
# Far more than a board can open, far less than would matter to its computer.
DESCRIPTORS = 128
PR_SET_NO_NEW_PRIVS = 38
CAPABILITIES_VERSION = 0x2008_0522
# The one capability that stays, for a folder that root serves and does not own.
CAP_DAC_OVERRIDE = 1
LINUX = sys.platform == "linux"


def missing() -> str | None:
    """Why code on a simulated board has the rights of this process's user; None where it has not."""
    if not LINUX:
        return f"there is no Landlock on {sys.platform}"
    if not landlock.version():
        return "this kernel has no Landlock"
    if not syscalls.is_supported():
        return "no filter of system calls is known for this processor or kernel"
    return None


def enter(root: str, *, file_size: int, memory: int = 0, keep: frozenset[int] = frozenset()) -> None:
    """Shut this thread, and those it starts, into the folder `root`. Raises `OSError`.

    No file may be longer than `file_size` bytes; `memory` is what the process may take beyond `MEMORY`. Of the standard
    streams it keeps those in `keep`: a terminal would take keystrokes for its user's shell.
    """
    with open(os.devnull, "r+b", buffering=0) as nothing:
        if LINUX:
            _restrict(root, file_size, memory)
        # On every system: a board whose warnings fill a pipe that nobody reads would stop.
        for stream in {0, 1, 2} - keep:
            os.dup2(nothing.fileno(), stream)


def _restrict(root: str, file_size: int, memory: int) -> None:
    """What `enter` does on Linux alone."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_size)
    _limit(resource.RLIMIT_AS, _address_space() + MEMORY + memory)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if landlock.version():
        # The library: codecs are imported on first use.
        landlock.restrict({os.path.realpath(root): landlock.CHANGE, os.path.dirname(os.__file__): landlock.READ})
    _drop_capabilities(library)
    if syscalls.is_supported():
        syscalls.refuse()


def seal() -> None:
    """No thread and no process can be started from now on. (For root this holds by the filter of `syscalls` alone.)"""
    if LINUX:
        _limit(resource.RLIMIT_NPROC, 0)


def _limit(what: int, value: int) -> None:
    """Set a limit that cannot be raised again; one that is lower already stays."""
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _address_space() -> int:
    """Bytes of addresses in use: some interpreters reserve far more than they touch. 0 where there is no `/proc`."""
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
