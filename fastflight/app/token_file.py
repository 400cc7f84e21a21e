"""Reads, watches and changes the token file.

The file is JSON (`access.tokens.Book`). `change` makes it readable by its owner only, and a file that other users may
write is refused: they could give themselves access. A file lock of the operating system, which ends with its process,
allows one change at a time.
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
from fastflight.files import FileLock, replacement

# Permission bits that must not be set.
WRITABLE = stat.S_IWGRP | stat.S_IWOTH
OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR


class TokenFile:
    """Watches a token file for an `Authenticator`: a call returns the content if it changed, else None."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None

    def __call__(self) -> bytes | None:
        """`RequestError` at each call for as long as the file cannot be read."""
        try:
            state = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        seen = (state.st_mtime_ns, state.st_size, state.st_ino, state.st_mode, state.st_uid)
        if seen == self._seen:
            return None
        content = read(self._path)
        self._seen = seen  # only after reading: a read that failed must be tried again, or a revocation is missed
        return content


def read(path: Path) -> bytes:
    """Return the content. `RequestError` if the file cannot be read, other users may write it, or it is no file.

    It is opened without blocking: a pipe in its place would block the call that authenticates.
    """
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            _check_owned(path, os.fstat(file.fileno()))
            return file.read(MAX_BOOK_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def book(path: Path) -> Book:
    """Return the decoded file, or an empty book if there is no file."""
    return Book.decode(read(path)) if path.exists() else Book()


def change(path: Path, changed: Callable[[Book], Book]) -> None:
    """Replace the book by `changed(book)`. `RequestError` from `changed`, and if the file cannot be written.

    A symbolic link is followed, and the file that it points to is replaced.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"), "fastflight token")
    except BusyError as error:
        raise RequestError(
            f"another process ({error.holder}) is changing this file", where=str(path), hint="Try again in a moment"
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    with contextlib.closing(lock):
        _replace(path, changed)


def _replace(path: Path, changed: Callable[[Book], Book]) -> None:
    content = changed(book(path)).encode()
    try:
        # The group may be allowed to read: a server may run as another user.
        mode = stat.S_IMODE(path.stat().st_mode) & ~WRITABLE if path.exists() else OWNER_ONLY
        with replacement(path, OWNER_ONLY) as file:
            file.write(content)
        os.chmod(path, mode)
    except OSError as error:  # as on a full disk
        raise _unreadable(path, error) from error


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_owned(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise RequestError("not a file", where=str(path), hint="`fastflight token add NAME --scope read:*` makes one")
    if sys.platform == "win32":  # where st_mode does not show permissions
        return
    if state.st_mode & WRITABLE:
        raise RequestError("others may write it, and so let themselves in", where=str(path), hint=f"chmod 600 {path}")
    if state.st_uid not in (os.geteuid(), 0):
        raise RequestError("it belongs to another user", where=str(path), hint="Use a file of your own")


def _unreadable(path: Path, error: OSError) -> RequestError:
    return RequestError(error.strerror or "cannot be read", where=str(path))
