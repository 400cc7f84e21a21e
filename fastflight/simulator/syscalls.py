"""A seccomp filter against what Landlock does not cover: system calls that affect other processes and their files.

`refuse` installs it in this thread and in the threads that it starts later. The calls below then fail with `EPERM`. The
filter exists for 64-bit x86 and ARM: check `is_supported` first. It cannot be removed.

The filter lists forbidden calls, not allowed ones: Landlock is the boundary, and an unexpected call of a C library must
not end the board.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

PR_SET_SECCOMP, MODE_FILTER = 22, 2
# By the kernel's name of the architecture: its number in a filter, and its column in `REFUSED`.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Call numbers from here on belong to the x32 interface, which has the same architecture number as x86_64.
X32 = 0x4000_0000

# Call numbers on x86_64 and aarch64; 0 if the call does not exist there. Source: the kernel's system call tables.
REFUSED = {
    # Sockets: Landlock restricts only TCP. A Unix socket could reach the user's session bus, and through it a shell.
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "io_uring_setup": (425, 425),
    # Programs: Landlock does not stop a program that is only in memory.
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, 0), "vfork": (58, 0),
    # Signals to other processes; Landlock forbids these since version 6.
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    # Rights, owners and times of all files. Landlock restricts `truncate` since version 3.
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, 0), "fchown": (93, 55), "lchown": (94, 0), "fchownat": (260, 54),
    "utime": (132, 0), "utimes": (235, 0), "futimesat": (261, 0), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "truncate": (76, 45),
    # Scheduling of other processes of this user, and memory, queues and keys shared with them.
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # Interfaces to the kernel's internals.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
}  # fmt: skip
# `clone` is allowed for a new thread, not for a new process. A filter cannot see the flags of `clone3`; it answers that
# `clone3` does not exist, and the C library then uses `clone`.
CLONE, CLONE3, THREAD = (56, 220), 435, 0x0001_0000
# A process may change its own limits, but not those of other processes.
PRLIMIT = (302, 261)

# Instructions of the filter, and the offsets of the call's number, architecture and first argument.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16
ALLOW, FAIL = 0x7FFF_0000, 0x0005_0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def is_supported() -> bool:
    """Whether the filter can be used on this system."""
    known = os.uname().machine in ARCHITECTURES and struct.calcsize("P") == 8
    return known and os.path.exists("/proc/sys/kernel/seccomp")


def refuse() -> None:
    """Install the filter. The thread must have set `PR_SET_NO_NEW_PRIVS` before. Raises `OSError`."""
    code = ctypes.create_string_buffer(_program(*ARCHITECTURES[os.uname().machine]))
    program = _Program(len(code) // 8, ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _program(architecture: int, column: int) -> bytes:
    refused = FAIL | errno.EPERM
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, refused), (LOAD, 0, 0, NUMBER)]
    lines += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, refused)]
    for numbers in REFUSED.values():
        if numbers[column]:
            lines += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, refused)]
    lines += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
    lines += [(EQUAL, 0, 4, CLONE[column]), (LOAD, 0, 0, ARGUMENT), (ANY_BIT, 1, 0, THREAD)]
    lines += [(RETURN, 0, 0, refused), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 0, 3, PRLIMIT[column]), (LOAD, 0, 0, ARGUMENT), (EQUAL, 1, 0, 0)]
    lines += [(RETURN, 0, 0, refused), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
