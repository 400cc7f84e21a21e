"""A local folder as a board sees it that has mounted it: what it reads, and what it writes.

No path leads out of the folder. Links that do, and what is no file or folder, do not exist for the board. A file that
the board writes anew replaces the old one when the board closes it; until then its content is in a part file beside it.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from fastflight.protocol.mount import State

if TYPE_CHECKING:
    from pathlib import Path

# Files that a board may write at the same time. Boards have room for fewer.
MAX_OPEN = 32
# How far behind the end of a file a board may write, because it has skipped some bytes.
MAX_GAP_BYTES = 65_536
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class _Written:
    """A file that the board writes. `part` becomes `path` at the end; None if `path` itself is written, to append."""

    file: BinaryIO
    path: str
    part: str | None


class Folder:
    """A local folder. Paths begin with a slash, which is the folder itself. Raises `OSError`.

    `unsafe_links`: links that lead out of the folder are followed. Call `close` at the end: what the board has not
    closed is dropped.
    """

    def __init__(self, top: Path, *, read_only: bool = False, unsafe_links: bool = False) -> None:
        # As the user named it, for messages.
        self.top = top
        self._top = os.path.realpath(top)
        self._read_only = read_only
        self._unsafe_links = unsafe_links
        self._written: dict[int, _Written] = {}
        self._opened = 0

    def read(self, what: str | int, offset: int, count: int) -> tuple[bytes, int]:
        """Return at most `count` bytes from `offset` on, and the size, of a path or of a file that is written."""
        if isinstance(what, int):
            file = self._file(what).file
            size = file.seek(0, os.SEEK_END)
            file.seek(offset)
            return file.read(count), size
        real = self._real(what)
        if os.path.isdir(real):
            raise _error(errno.EISDIR)
        # The path has no links any more: one that was put there meanwhile is not followed.
        descriptor = os.open(real, os.O_RDONLY | NO_FOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            file.seek(offset)
            return file.read(count), os.fstat(descriptor).st_size

    def state(self, path: str) -> State:
        """Return what a path is."""
        found = os.stat(self._real(path))
        return State(stat.S_ISDIR(found.st_mode), found.st_size, int(found.st_mtime))

    def entries(self, path: str) -> list[tuple[str, State]]:
        """Return the files and folders in a folder, by name."""
        found = []
        parts = {written.part for written in self._written.values()}
        real = self._real(path)
        for name in sorted(os.listdir(real)):
            with suppress(OSError):
                if os.path.join(real, name) not in parts:
                    found.append((name, self.state(posixpath.join(path, name))))
        return found

    def open(self, path: str, mode: str) -> tuple[int, int]:
        """Open a file to write it, with a `mode` as that of Python's `open`. Return its number and its size."""
        real = self._to_change(path, follow=True)
        if os.path.isdir(real):
            raise _error(errno.EISDIR)
        exists = os.path.lexists(real)
        if exists and "x" in mode:
            raise _error(errno.EEXIST)
        if not exists and "r" in mode:
            raise _error(errno.ENOENT)
        if len(self._written) >= MAX_OPEN:
            raise _error(errno.EMFILE)
        if "a" in mode:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | NO_FOLLOW
            written = _Written(os.fdopen(os.open(real, flags, 0o666), "a+b", buffering=0), real, None)
        else:
            written = self._new_part(real, keep="r" in mode)
        self._opened += 1
        self._written[self._opened] = written
        return self._opened, written.file.seek(0, os.SEEK_END)

    def write(self, number: int, offset: int, data: bytes) -> None:
        """Write to an open file: at `offset`, or at the end if it was opened to append."""
        written = self._file(number)
        size = written.file.seek(0, os.SEEK_END)
        if written.part is not None:
            if not 0 <= offset <= size + MAX_GAP_BYTES:
                raise _error(errno.EINVAL)
            written.file.seek(offset)
        while data:  # a full disk takes a part
            data = data[written.file.write(data) :]

    def close_file(self, number: int) -> None:
        """End writing: what was written replaces the old file."""
        written = self._file(number)
        del self._written[number]
        try:
            if written.part is not None:
                written.file.flush()
                os.fsync(written.file.fileno())
        except OSError:
            _drop(written)
            raise
        finally:
            written.file.close()
        if written.part is not None:
            try:
                os.replace(written.part, written.path)
            except OSError:
                _drop(written)
                raise

    def remove(self, path: str) -> None:
        """Remove a file."""
        real = self._to_change(path)
        if os.path.isdir(real) and not os.path.islink(real):
            raise _error(errno.EISDIR)
        os.remove(real)

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        os.mkdir(self._to_change(path))

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(self._to_change(path))

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a folder. A file replaces another one."""
        os.replace(self._to_change(old), self._to_change(new))

    def close(self) -> None:
        """Drop what the board has not closed."""
        for written in self._written.values():
            written.file.close()
            _drop(written)
        self._written.clear()

    def _new_part(self, real: str, *, keep: bool) -> _Written:
        folder, name = os.path.split(real)
        descriptor, part = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".part", dir=folder)
        written = _Written(os.fdopen(descriptor, "w+b", buffering=0), real, part)
        try:
            with suppress(FileNotFoundError):
                os.chmod(part, stat.S_IMODE(os.stat(real).st_mode) if os.path.exists(real) else _usual_mode())
                if keep:
                    with open(real, "rb") as old:
                        shutil.copyfileobj(old, written.file)
        except OSError:
            written.file.close()
            _drop(written)
            raise
        return written

    def _file(self, number: int) -> _Written:
        try:
            return self._written[number]
        except KeyError:
            raise _error(errno.EBADF) from None

    def _to_change(self, path: str, *, follow: bool = False) -> str:
        """Return the real path of what is to be changed, which need not exist. A link itself, unless `follow`."""
        if self._read_only:
            raise _error(errno.EROFS)
        inside = _inside(path)
        if not inside:
            raise _error(errno.EINVAL)
        folder, name = os.path.split(os.path.join(self._top, inside))
        real = os.path.join(self._check(os.path.realpath(folder)), name)
        # A link that leads out does not exist for the board, so it cannot replace or remove it either.
        target = self._check(os.path.realpath(real))
        if os.path.lexists(target) and stat.S_IFMT(os.lstat(target).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise _error(errno.ENOENT)
        return target if follow else real

    def _real(self, path: str) -> str:
        real = self._check(os.path.realpath(os.path.join(self._top, _inside(path))))
        if stat.S_IFMT(os.stat(real).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise _error(errno.ENOENT)
        return real

    def _check(self, real: str) -> str:
        outside = real != self._top and not real.startswith(self._top.rstrip(os.sep) + os.sep)
        if outside and not self._unsafe_links:
            raise _error(errno.ENOENT)
        return real


def _inside(path: str) -> str:
    """Return the path below the folder. `..` ends at the folder, and on Windows nothing names a drive."""
    if os.name == "nt" and set(path) & set(':\\*?"<>|'):
        raise _error(errno.EINVAL)
    if "\0" in path:
        raise _error(errno.EINVAL)
    return posixpath.normpath("/" + path).lstrip("/")


def _usual_mode() -> int:
    """Return the mode of a new file: `mkstemp` makes files that only their owner may read."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _drop(written: _Written) -> None:
    if written.part is not None:
        with suppress(OSError):
            os.remove(written.part)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
