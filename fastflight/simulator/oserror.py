"""The board's `OSError`. Its first argument is an error number, printed as by MicroPython (`[Errno 2] ENOENT`)."""

from __future__ import annotations

import errno
import functools
import os
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

# The names that MicroPython knows. An error with another number is printed as the number alone.
ERRNO = {
    "EPERM": 1,
    "ENOENT": 2,
    "EIO": 5,
    "EBADF": 9,
    "EAGAIN": 11,
    "ENOMEM": 12,
    "EACCES": 13,
    "EEXIST": 17,
    "ENODEV": 19,
    "EISDIR": 21,
    "EINVAL": 22,
    "ENOSPC": 28,
    "EOPNOTSUPP": 95,
    "EADDRINUSE": 98,
    "ECONNABORTED": 103,
    "ECONNRESET": 104,
    "ENOBUFS": 105,
    "ENOTCONN": 107,
    "ETIMEDOUT": 110,
    "ECONNREFUSED": 111,
    "EHOSTUNREACH": 113,
    "EALREADY": 114,
    "EINPROGRESS": 115,
}
ERRNO_NAMES = {number: name for name, number in ERRNO.items()}
# Errors of littlefs for which MicroPython has no name.
ENOTDIR = 20
ENAMETOOLONG = 36
ENOTEMPTY = 39

_OSError = OSError


class BoardOSError(_OSError):
    """The board's `OSError`. `errno` is the first argument if that is a number, whatever the number of arguments."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.errno = args[0] if args and isinstance(args[0], int) else None

    def __str__(self) -> str:
        if not self.args:
            return ""
        if not isinstance(self.args[0], int) or len(self.args) > 2:
            return str(self.args[0] if len(self.args) == 1 else self.args)
        name = ERRNO_NAMES.get(self.args[0])
        text = f"[Errno {self.args[0]}] {name}" if name else str(self.args[0])
        return text if len(self.args) == 1 else f"{text}: {self.args[1]}"

    def __repr__(self) -> str:
        return f"OSError({self.args[0]!r},)" if len(self.args) == 1 else f"OSError{self.args!r}"


BoardOSError.__name__ = BoardOSError.__qualname__ = "OSError"


# The host's error numbers differ between systems, their names do not.
_BY_NAME = ERRNO | {"ENOTDIR": ENOTDIR, "ENAMETOOLONG": ENAMETOOLONG, "ENOTEMPTY": ENOTEMPTY}


def translated(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it raises `BoardOSError` instead of the host's `OSError`, which holds host paths."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BoardOSError:
            raise
        except _OSError as error:
            name = errno.errorcode.get(error.errno or 0, "EIO")
            # Windows reports EACCES where POSIX reports EISDIR, for example when a folder is opened as a file.
            name = "EISDIR" if os.name == "nt" and name == "EACCES" else name
            raise BoardOSError(_BY_NAME.get(name, ERRNO["EIO"])) from None

    return wrapper
