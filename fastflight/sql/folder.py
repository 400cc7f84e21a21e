"""The folder of a worker process: all that a worker sees of the server's disk.

For each query the server puts the rows into it that the client may read. A Parquet file of a recording becomes a hard
link: that costs nothing, and keeps the rows if retention removes the file meanwhile. Other rows are written as an Arrow
stream. The files are removed after the query. Their names are made by chance and have no ending, so that no query can
name a file: DuckDB takes a name in a query for that of a file only by its ending.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from fastflight.errors import BusyError
from fastflight.files import FileLock
from fastflight.sources.spool import storage_errors

PREFIX, LOCK = "queries-", "lock"
# A folder is locked at once. An older one without a lock was left by a server that was killed.
ABANDONED_SECONDS = 60.0


class WorkerFolder:
    """The folder of one worker, in `parent`: that of the recordings, since a hard link must be on the same disk."""

    def __init__(self, parent: Path) -> None:
        with storage_errors("making a folder for queries"):
            _remove_abandoned(parent)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = FileLock(self.path / LOCK)
        self._files: list[Path] = []

    def link(self, file: Path) -> str:
        """Give the worker a file that never changes. Return its name in the folder."""
        link = self._new()
        with storage_errors("giving a file to a query"):
            try:
                os.link(file, link)
            except OSError:  # another disk, or one without hard links
                shutil.copyfile(file, link)
        return link.name

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[str, int]:
        """Give the worker rows, as an Arrow stream. Return the name of the file in the folder, and their number."""
        file, rows = self._new(), 0
        with storage_errors("writing a temporary file"), pa.OSFile(str(file), "wb") as sink:
            with pa.ipc.new_stream(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        return file.name, rows

    def clear(self) -> None:
        """Remove the files of a query."""
        files, self._files = self._files, []
        for file in files:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def _new(self) -> Path:
        self._files.append(self.path / secrets.token_hex(8))
        return self._files[-1]


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of servers that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, BusyError):
            if folder.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                lock = FileLock(folder / LOCK)
                shutil.rmtree(folder, ignore_errors=True)
                lock.close()
