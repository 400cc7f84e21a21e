"""What DuckDB has in a worker process: two databases, and the rows and files of the server, which it reads in them."""

from __future__ import annotations

import datetime
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import fsspec  # type: ignore[import-untyped]
import pyarrow as pa

from fastflight.sql.frames import Kind, Pipe
from fastflight.sql.names import CATALOG

# DuckDB takes 6 kB for each row group of a footer that it keeps. A GB of recordings has 200 of them.
MAX_FOOTERS = 32


# Functions that tell the time. All of them tell that at which the server took the query: a query is planned and run in
# two databases, and a type or a range of rows that follows from the time must be the same in both.
TIME = "getvariable('time')"
CLOCKS = {
    **dict.fromkeys(("now", "get_current_timestamp", "transaction_timestamp"), TIME),
    **dict.fromkeys(("current_date", "today"), f"{TIME}::date"),
    **dict.fromkeys(("get_current_time", "current_localtime"), f"{TIME}::timestamp::time"),
    "current_localtimestamp": f"{TIME}::timestamp",
}
AGE = f"(a) as system.main.age({TIME}::date::timestamp, a), (a, b) as system.main.age(a, b)"


class Abandoned(Exception):
    """The server has ended the query."""


class Scans:
    """Fetches the rows of tables from the server, for the threads of DuckDB."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._asking = threading.Lock()
        self._count = 0

    def begin(self, table: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a new scan of a table."""
        with self._asking:
            self._count += 1
            return self._rows(self._count, table, schema)

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Return bytes of a file."""
        content = self._ask(file, offset, size, takes_file=True)
        if isinstance(content, bytes):
            return content
        try:
            # Other threads read meanwhile, and the server copies nothing.
            read = os.pread(content, size, offset)
        except OSError:
            read = b""
        finally:
            os.close(content)
        if len(read) == size:
            return read
        # The server says what is wrong with the disk.
        content = self._ask(file, offset, size, takes_file=False)
        assert isinstance(content, bytes)
        return content

    def _ask(self, file: int, offset: int, size: int, *, takes_file: bool) -> bytes | int:
        """Return bytes of a file, or the descriptor of a file that has them at the same place."""
        with self._asking:
            self._pipe.send(Kind.READ, [offset, size, takes_file], file)
            frame = self._pipe.receive()
            if frame.kind == Kind.FILE:
                return self._pipe.receive_file()
        if frame.kind != Kind.BYTES:
            raise Abandoned
        return frame.payload

    def _rows(self, number: int, table: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while True:
            with self._asking:
                self._pipe.send(Kind.NEXT, [table], number)
                frame = self._pipe.receive()
            if frame.kind == Kind.END:
                return
            if frame.kind != Kind.ROWS:
                raise Abandoned
            yield pa.ipc.read_record_batch(pa.py_buffer(frame.payload), schema)


class File:
    """A Parquet file of the server, as DuckDB reads it through Python.

    Threads of DuckDB share it: each of them seeks and then reads. So each has a position of its own.
    """

    def __init__(self, scans: Scans, number: int, size: int) -> None:
        self._scans = scans
        self._number = number
        self._size = size
        self._of_thread = threading.local()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._of_thread.position = start + offset
        return start + offset

    def tell(self) -> int:
        return getattr(self._of_thread, "position", 0)

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        rest = max(0, self._size - start)
        content = self._scans.read(self._number, start, rest if size < 0 else min(size, rest))
        self._of_thread.position = start + len(content)
        return content

    def close(self) -> None: ...


class Files(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The Parquet files of one query. DuckDB keeps the footers of those before, by their names."""

    protocol = "stored"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, tuple[Scans, int, int]] = {}
        # The names of all files that were ever added.
        self.known: set[str] = set()

    def clear(self) -> None:
        """Forget all files."""
        self._files.clear()

    def add(self, scans: Scans, name: str, number: int, size: int) -> str:
        """Return the path of file `number` of the server. The name tells its footer."""
        path = f"{self.protocol}://{name}"
        self._files[path] = (scans, number, size)
        self.known.add(path)
        return path

    def open(self, path: str, mode: str = "rb", **_: Any) -> File:
        return File(*self._files[path])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._files[path][2], "type": "file"}

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path] if path in self._files else []

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Rows:
    """The rows of a table, as DuckDB reads them. Each reading is a new scan."""

    def __init__(self, scans: Scans, table: int, schema: pa.Schema) -> None:
        self._scans = scans
        self._table = table
        self._schema = schema

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        rows = self._scans.begin(self._table, self._schema)
        return pa.RecordBatchReader.from_batches(self._schema, rows).__arrow_c_stream__(requested_schema)


class Databases:
    """Two databases: one plans a query over empty tables, the other runs it.

    Opening them takes 25 ms, so they are used for many queries. Each query has a catalog of its own in both.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        # More threads make planning no faster.
        self.planner = duckdb.connect(":memory:", config={**settings, "threads": "1"})
        self.runner = duckdb.connect(":memory:", config=dict(settings))
        self.files = Files()
        self.runner.register_filesystem(self.files)
        self.runner.execute(f"set allowed_directories = ['{Files.protocol}://']")
        # A query reads most bytes once, and the system has the files in its own cache. Footers are kept.
        self.runner.execute("set enable_external_file_cache = false")
        self.runner.execute("set parquet_metadata_cache = true")
        for each in (self.planner, self.runner):
            each.execute("set TimeZone = 'UTC'")
            for name, time in CLOCKS.items():
                each.execute(f"create temp macro {name}() as {time}")
            each.execute(f"create temp macro age{AGE}")
            each.execute("set enable_external_access = false")
        self.runner.execute("set lock_configuration = true")
        self._registered: list[str] = []
        self._attach()

    def register(self, database: duckdb.DuckDBPyConnection, rows: Any) -> str:
        """Make Arrow rows a table, until `renew` is called, and return its name, which no query can guess."""
        name = f"rows_{secrets.token_hex(8)}"
        database.register(name, rows)
        self._registered.append(name)
        return f"temp.main.{name}"

    def set_clock(self, time: datetime.datetime) -> None:
        """Set what the functions that tell the time return, until it is set again."""
        for each in (self.planner, self.runner):
            each.execute(f"set variable time = '{time.isoformat()}'::timestamptz")

    @property
    def used_up(self) -> bool:
        """Whether DuckDB keeps as many footers as it may."""
        return len(self.files.known) > MAX_FOOTERS

    def renew(self) -> None:
        """Forget the tables of the query before."""
        registered, self._registered = self._registered, []
        for each in (self.planner, self.runner):
            each.execute("use memory")
            each.execute(f"detach {CATALOG}")
            for name in registered:
                each.unregister(name)
        self.files.clear()
        self._attach()

    def _attach(self) -> None:
        for each in (self.planner, self.runner):
            each.execute(f"attach ':memory:' as {CATALOG}")

    def close(self) -> None:
        """Close both."""
        self.planner.close()
        self.runner.close()
