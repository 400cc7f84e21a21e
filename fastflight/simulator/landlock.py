"""Landlock: takes file and network rights away from this thread and the threads that it starts later. Linux only.

`version` returns the kernel's version of the interface, or 0 if it has none. `restrict` leaves the thread only the
given rights on files. It also forbids TCP ports, abstract Unix sockets and signals to outside processes, as far as the
kernel's version supports it. The thread can execute no program from the file system. This cannot be undone.

Landlock does not restrict open descriptors, `stat`, `chmod`, UDP, or Unix sockets with a path; `syscalls` forbids most
of these. Source: the kernel's documentation, userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

# System calls numbered above 423 have the same number on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1

# Rights on files.
(
    EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK,
    MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV,
) = (1 << bit for bit in range(16))  # fmt: skip
READ = READ_FILE | READ_DIR
# What a board may do in its folder. It cannot make links, devices, pipes or sockets there.
CHANGE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE
# The number of file rights that each version knows, counted from the first.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
# Rights since version 4: to bind a TCP port, and to connect to one.
NETWORK_VERSION, TCP = 4, 0b11
# Scopes since version 6: abstract Unix sockets of, and signals to, outside processes.
SCOPE_VERSION, OTHERS = 6, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _layout_ = "ms"  # Python 3.14 wants it beside `_pack_`; without bit fields it changes nothing
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock that is enabled on this system, or 0."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0


def restrict(folders: Mapping[str, int]) -> None:
    """Restrict this thread to the rights in `folders`, a mapping of folder paths to rights. Raises `OSError`.

    The thread must have set `PR_SET_NO_NEW_PRIVS` before.
    """
    supported = version()
    files = (1 << FILE_RIGHTS.get(supported, max(FILE_RIGHTS.values()))) - 1
    ruleset = _Ruleset(files, TCP if supported >= NETWORK_VERSION else 0, OTHERS if supported >= SCOPE_VERSION else 0)
    # Kernels that know a shorter structure accept this one if the additional fields are zero.
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
