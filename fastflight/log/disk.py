"""The files of a folder of recordings: the database, Parquet files, and who may read them.

`LocalDisk` is the folder. Tests replace it by one whose calls fail. `failure` converts the errors of the system and of
SQLite to a `StorageError`, and is the only place that does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from fastflight.errors import StorageError, StorageFull
from fastflight.files import UNFINISHED, replacement

DATABASE = "recordings.db"
# What a server must know again after a restart beside its recordings (`sources.kept_values`).
KEPT_VALUES = "crashes.db"
# Only the user who makes recordings may read them.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077
# A file that takes room, so that the store has it when the disk is full: to delete rows, SQLite first writes what it
# changes. Twice what its log of changes has (`database.WAL_PAGES`), so that it can be moved into the tables.
RESERVE = "room.reserve"
RESERVE_BYTES = 4 * 1024 * 1024
# The endings of the files that a server creates there.
OWN_DATABASES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", KEPT_VALUES, f"{KEPT_VALUES}-journal")
OWN_ENDINGS = (*OWN_DATABASES, ".parquet", ".lock", ".lease", ".reserve", UNFINISHED)
# What else may be in the folder: files of queries that run, recordings that servers share, and typed rows.
OWN_FOLDERS = ("queries", "shared", "rows")
# The system's errors for a disk, a quota or a file that takes no more.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The same of SQLite. The second one is for the file that its connections share.
SQLITE_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
# A reader waits at most this long while a writer recovers the database after a crash.
BUSY_SECONDS = 30.0

# The last one: a damaged database puts its bytes into SQLite's message, which Python then cannot decode.
PROBLEMS = (OSError, sqlite3.Error, UnicodeDecodeError)


class LocalDisk:
    """A folder of the operating system, which must exist. Raises the errors of the system and of SQLite."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def connect(self, *, writing: bool = False) -> sqlite3.Connection:
        """Open the database. With `writing`, create it if it is missing, for its owner alone."""
        path = self.folder / DATABASE
        if writing:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        uri = f"file:{quote(str(path.absolute()))}?mode={'rw' if writing else 'ro'}"
        # Transactions are begun and ended by name, and one thread at a time uses a connection.
        return sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )

    def names(self) -> list[str]:
        """Return the names of all files in the folder, sorted."""
        return sorted(os.listdir(self.folder))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Replace the content of a file, or leave it as it was. What this returns from is on the medium."""
        with replacement(self.folder / name, FILE_MODE) as file:
            file.write(data)
        self.sync()

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self.folder / name)

    def fill_reserve(self) -> None:
        """Create the file that takes room, if it is missing and the disk has the room."""
        with contextlib.suppress(OSError):
            if RESERVE not in self.names():
                # Random bytes, because some file systems give no room to zeros.
                self.write(RESERVE, os.urandom(RESERVE_BYTES))

    def release_reserve(self) -> bool:
        """Remove the file that takes room. Return whether there was one. Do not write rows there: they take it all."""
        try:
            self.remove(RESERVE)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Return when all creations, renames and removals of files are on the medium."""
        if os.name == "nt":
            return  # Windows cannot open a folder; NTFS journals its entries.
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private(folder: Path) -> bool:
    """Create `folder` if it is missing, and deny access to other users. Return whether they have no access to it.

    A folder that has other files too, or belongs to another user, keeps its mode: then only the recordings in it are
    made private.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    if os.name == "nt":  # the mode does not control access on Windows
        return True
    names = os.listdir(folder)
    for name in names:
        if name.endswith(OWN_ENDINGS):
            _restrict(folder / name, stat.S_ISREG, FILE_MODE)
    if all(name.endswith(OWN_ENDINGS) or name in OWN_FOLDERS for name in names):
        _restrict(folder, stat.S_ISDIR, FOLDER_MODE)
    return not folder.stat().st_mode & OTHERS


def _restrict(path: Path, is_kind: Callable[[int], bool], mode: int) -> None:
    """Set `mode` if other users have rights to `path`, and the system allows it."""
    with contextlib.suppress(OSError):  # it is gone, or belongs to another user
        present = os.lstat(path).st_mode
        if is_kind(present) and present & OTHERS:
            os.chmod(path, mode)


def has_no_room(error: BaseException) -> bool:
    """Whether a call failed because the disk is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) in SQLITE_NO_ROOM
    return isinstance(error, OSError) and error.errno in NO_ROOM


def is_damage(error: BaseException | None) -> bool:
    """Whether a call failed because bytes of the database have changed."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
    return isinstance(error, UnicodeDecodeError)


def failure(error: BaseException, doing: str, where: str = "") -> StorageError:
    """Return the `StorageError` for one of `PROBLEMS`, without the system's text: that may have a path of the host."""
    if has_no_room(error):
        return StorageFull(f"no room on the disk for {doing}", where=where, hint="Make room, or shorten the retention")
    hint = "Look at the disk of the host"
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else "no reason given"
    else:
        code = "SQLITE_CORRUPT" if isinstance(error, UnicodeDecodeError) else "SQLITE_ERROR"
        reason = getattr(error, "sqlite_errorname", code).removeprefix("SQLITE_").lower().replace("_", " ")
        if reason in ("corrupt", "notadb"):
            hint = f"{DATABASE} is damaged: move all files out of the folder. Any tool reads the Parquet files"
    return StorageError(f"{doing} failed: {reason}", where=where, hint=hint)
