"""A disk of which calls fail on request."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from fastflight.log.disk import LocalDisk

# How SQLite tells these errors of the system.
CODES = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EIO: sqlite3.SQLITE_IOERR_WRITE, errno.EROFS: sqlite3.SQLITE_READONLY}


class FailingDisk(LocalDisk):
    """A folder of which calls fail: `fails(call, name)` gives the errno, or 0.

    The calls are `write` of rows or of a file, `sync` of a transaction, `open` of the database, `names`, `read` and
    `remove`. A file that cannot be written is left unfinished.
    """

    def __init__(self, folder: Path, fails: Callable[[str, str], int]) -> None:
        super().__init__(folder)
        self._fails = fails

    def step(self, call: str, name: str) -> None:
        if number := self._fails(call, name):
            raise OSError(number, "on request")

    def query(self, call: str) -> None:
        """As `step`, with the error of SQLite."""
        if number := self._failure(call):
            problem = sqlite3.OperationalError("on request")
            problem.sqlite_errorcode, problem.sqlite_errorname = CODES.get(number, sqlite3.SQLITE_IOERR), "SQLITE_IOERR"
            raise problem

    def _failure(self, call: str) -> int:
        try:
            self.step(call, "")
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def connect(self, *, writing: bool = False) -> sqlite3.Connection:
        self.query("open")
        connection = super().connect(writing=writing)
        return cast(sqlite3.Connection, FailingConnection(self, connection)) if writing else connection

    def names(self) -> list[str]:
        self.step("names", "")
        return super().names()

    def read(self, name: str) -> bytes:
        self.step("read", name)
        return super().read(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        try:
            self.step("write", name)
        except OSError:
            (self.folder / f"{name}.new").write_bytes(data[: len(data) // 2])
            raise
        super().write(name, data)

    def remove(self, name: str) -> None:
        self.step("remove", name)
        super().remove(name)


class FailingConnection:
    """The connection of the writer. A transaction fails where its rows are written, or where it is synced."""

    def __init__(self, disk: FailingDisk, connection: sqlite3.Connection) -> None:
        self._disk = disk
        self._connection = connection

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "commit":
            self._disk.query("sync")
        elif sql.startswith(("insert", "update", "delete")):
            self._disk.query("write")
        return self._connection.execute(sql, *arguments)

    def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        self._disk.query("write")
        return self._connection.executemany(sql, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
