"""A small SQLite file in the folder of the recordings, for what a server must know again after a restart.

It holds JSON values by a kind and a key. While no recordings are kept there is no file, and nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import structlog

from fastflight.log.disk import FILE_MODE, KEPT_VALUES, PROBLEMS

log = structlog.get_logger(__name__)

# How long a write waits for another process that reads the file, such as a backup.
BUSY_SECONDS = 2.0
UNREADABLE = "what an earlier server kept cannot be read"
_SELECT = "select key, value from kept where kind = ? order by key"
_TABLE = "create table if not exists kept (kind text, key text, value text, primary key (kind, key)) without rowid"

T = TypeVar("T")

# By kind and key. None removes a value.
Changes = Mapping[tuple[str, str], Any]


class KeptValues:
    """The values in the file, which are JSON objects. Any thread may use it.

    `folder` returns the folder of the file, or None while there is none.

    A disk that fails is logged once. What could not be saved is saved with the next changes.
    """

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._unsaved: dict[tuple[str, str], Any] = {}
        self._failed = False

    def load(self, kind: str, make: Callable[..., T]) -> dict[str, T]:
        """Return what `make` makes of the values of a kind, by key. Its arguments are the keys of the value.

        What cannot be read, or was kept by another version of the server and does not fit, is left out.
        """
        loaded: dict[str, T] = {}
        try:
            with self._lock:
                database = self._open()
                rows = [] if database is None else database.execute(_SELECT, (kind,)).fetchall()
        except PROBLEMS as error:
            self._report(UNREADABLE, error)
            return {}
        for key, value in rows:
            try:
                loaded[key] = make(**json.loads(value))
            except (ValueError, TypeError) as error:
                self._report(UNREADABLE, error)
        return loaded

    def save(self, changes: Changes) -> None:
        """Keep these changes, all or none: what this returns from is on the disk, unless it has failed."""
        with self._lock:
            self._unsaved.update(changes)
            try:
                if (database := self._open()) is None:  # there may be a folder later
                    self._unsaved = {key: value for key, value in self._unsaved.items() if value is not None}
                    return
                with database:
                    for key, value in self._unsaved.items():
                        database.execute("delete from kept where kind = ? and key = ?", key)
                        if value is not None:
                            database.execute("insert into kept values (?, ?, ?)", (*key, json.dumps(value)))
            except PROBLEMS as error:
                self._report("crashes and alerts are not saved", error)
            else:
                self._unsaved, self._failed = {}, False

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    def _open(self) -> sqlite3.Connection | None:
        if self._database is None and (folder := self._folder()) is not None and folder.is_dir():
            path = folder / KEPT_VALUES
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
            database = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
            try:
                database.execute(_TABLE)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _report(self, what: str, error: BaseException) -> None:
        if not self._failed:
            log.warning(what, error=str(error))
        self._failed = True
