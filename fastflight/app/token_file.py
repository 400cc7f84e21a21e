"""The file of tokens: read, watched, and changed.

It is JSON (`service.tokens.Book`), readable by its owner alone when made here. One that others may write is not read:
they could let themselves in. Changes are written to a file beside it, which replaces it when it is complete. A lock of
the operating system on a third file allows one change at a time. It ends with its process: a killed one blocks nobody.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from fastflight.access.tokens import MAX_BOOK_BYTES, Book
from fastflight.errors import BusyError, RequestError
from fastflight.log.lock import FileLock

# What may not be set: that its group, or others, may write.
WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class TokenFile:
    """What `Authenticator` reads: the content of `path` where it changed since the last time, else None."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None

    def __call__(self) -> bytes | None:
        """`RequestError` for what cannot be read: each time, until it can be."""
        try:
            state = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        seen = (state.st_mtime_ns, state.st_size, state.st_ino, state.st_mode, state.st_uid)
        if seen == self._seen:
            return None
        content = read(self._path)
        self._seen = seen  # now: where it could not be read for a moment, what was revoked must not be missed
        return content


def read(path: Path) -> bytes:
    """The content of a file of tokens. `RequestError` for one that others may write, and for what is no file.

    A pipe in its place would have whoever looks, a call of somebody's, wait for ever: it is opened and not waited for.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            _check_owned(path, os.fstat(file.fileno()))
            return file.read(MAX_BOOK_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def book(path: Path) -> Book:
    """What it says; of a file that is not there, an empty one."""
    return Book.decode(read(path)) if path.exists() else Book()


def change(path: Path, changed: Callable[[Book], Book]) -> None:
    """Write what `changed` makes of the book. `RequestError` if that is refused, or the file cannot be written.

    Of a link, the file that it leads to is changed: a server may know that by its own name.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"), "fastflight token")
    except BusyError as error:
        raise RequestError(
            "somebody else is changing it", where=str(path), hint=f"{error.holder} is: try again when it has ended"
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    with contextlib.closing(lock):
        _replace(path, changed)


def _replace(path: Path, changed: Callable[[Book], Book]) -> None:
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.unlink(missing_ok=True)  # of a process that was killed
        with open(beside, "xb", opener=_for_owner) as file:
            if path.exists():  # a server of another user may read it by its group
                os.chmod(beside, stat.S_IMODE(path.stat().st_mode) & ~WRITABLE)
            file.write(changed(book(path)).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):  # a full disk, for one
            raise _unreadable(path, error) from error
        raise


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_owned(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise RequestError("not a file", where=str(path), hint="`fastflight token add NAME --scope read:*` makes one")
    if sys.platform == "win32":  # its rights are not in the mode
        return
    if state.st_mode & WRITABLE:
        raise RequestError("others may write it, and so let themselves in", where=str(path), hint=f"chmod 600 {path}")
    if state.st_uid not in (os.geteuid(), 0):
        raise RequestError("it belongs to another user", where=str(path), hint="Use a file of your own")


def _unreadable(path: Path, error: OSError) -> RequestError:
    return RequestError(error.strerror or "cannot be read", where=str(path))
