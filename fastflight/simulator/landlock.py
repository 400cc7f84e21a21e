"""Landlock: Linux takes file and network rights away from this thread, and from the threads that it starts later.

`version` says which version of the interface the kernel has, 0 for none. `restrict` leaves this thread the files of the
rules it is given, no TCP port, no abstract Unix socket and no signal to a process outside, each as far as the kernel's
version goes. No program of the file system can be executed. There is no way back.

Landlock does not cover all: opened descriptors stay usable, and `stat`, `chmod`, UDP and Unix sockets with a path are
free. `syscalls` closes those. Source: the kernel's documentation, userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

# The same on every architecture that Linux calls by numbers above 423.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1

# Rights on files.
(
    EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK,
    MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV,
) = (1 << bit for bit in range(16))  # fmt: skip
READ = READ_FILE | READ_DIR
# All that a board does in its folder. It has no links, devices, pipes or sockets there.
CHANGE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE
# How many of the file rights each version knows.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
# Since version 4: to bind a TCP port, and to connect to one.
NETWORK_VERSION, TCP = 4, 0b11
# Since version 6: abstract Unix sockets of others, and signals to others.
SCOPE_VERSION, OTHERS = 6, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """The version of Landlock that this system has in force, 0 where it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0


def restrict(folders: Mapping[str, int]) -> None:
    """Leave this thread the rights in `folders` and below, by path. Raises `OSError`.

    The thread must have given up new privileges (`PR_SET_NO_NEW_PRIVS`).
    """
    known = version()
    files = (1 << FILE_RIGHTS.get(known, max(FILE_RIGHTS.values()))) - 1
    ruleset = _Ruleset(files, TCP if known >= NETWORK_VERSION else 0, OTHERS if known >= SCOPE_VERSION else 0)
    # Older kernels take a longer structure whose end is zero.
    rules = _call(CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    try:
        for path, rights in folders.items():
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                _call(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(_PathRule(rights & files, folder)), 0)
            finally:
                os.close(folder)
        _call(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)
