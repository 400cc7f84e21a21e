"""One query: the server's side of the dialogue with a worker process.

Rows of tables go to the worker when it asks for them, and rows of the result come back, in the thread that iterates
over the result. A query that is closed, or reaches a limit, is ended by killing its worker.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from fastflight.access.identity import Identity
from fastflight.errors import FastFlightError, QueryLimit, RequestError, SourceError
from fastflight.log import StoredFile
from fastflight.service.source import Lot, Noted
from fastflight.sql.frames import Frame, Kind
from fastflight.sql.names import shown
from fastflight.sql.process import Worker, Workers
from fastflight.sql.results import (
    FAILURE,
    NAMED,
    PLANNED,
    RANGE,
    TABLE,
    Failure,
    Planned,
    read_json,
    read_rows,
    read_schema,
    unannounced,
)
from fastflight.sql.tables import STORED_COLUMNS, Table, Tables

# How often a query that waits for its worker checks whether its client is still there.
LOOK_SECONDS = 0.2
HINTS = {
    "memory": "Select fewer columns or rows, or group by fewer values",
    "seconds": "Select a shorter time, or fewer tables",
    "rows": "Add a limit, or aggregate",
    "row_bytes": "Select shorter values or fewer columns, or set [sql] row_bytes in the fleet file",
}
UNITS = {"memory": "bytes of memory", "row_bytes": "bytes for one row of the result"}
EXPLAIN_SCHEMA = pa.schema([("explain_key", pa.string()), ("explain_value", pa.string())])


class Run:
    """One query. `close` ends it at any point."""

    def __init__(self, tables: Tables, workers: Workers, identity: Identity) -> None:
        self._tables = tables
        self._workers = workers
        self._identity = identity
        self._reads_all = tables.shows_all_recordings(identity)
        self._limits = workers.limits
        self._left = self._limits.seconds
        self._opened = ExitStack()
        self._open: list[Table] = []
        self._names: list[tuple[str, str, str]] = []
        self._files: list[StoredFile] = []
        # By the number of a table: the first number of a recording that is not in files.
        self._ends: dict[int, int] = {}
        self._scans: dict[int, Iterator[pa.RecordBatch]] = {}
        self._ahead: dict[int, tuple[Kind, Any]] = {}
        self._failure: BaseException | None = None
        self._ended = False
        self._read: list[dict[str, int]] = []
        self.rows = 0
        self.plan = Planned()
        self.schema = self.parameters = pa.schema([])
        self._began = time.monotonic()
        self._worker: Worker | None = workers.take(identity)

    def ask(self, query: str, parameters: pa.RecordBatch | None, *, describe: bool = False) -> None:
        """Send the query, and read the dialogue until the schema of the result is known."""
        self._began = time.monotonic()
        self._send(Kind.ASK, {"query": query, "describe": describe})
        self._send(Kind.ROWS, b"" if parameters is None else _stream(parameters))
        named = read_json(NAMED, self._next(Kind.TABLES).payload)
        try:
            self._open_tables(named.tables)
            if named.lists:
                listed = self._tables.listing(self._identity)
                self._send(Kind.ROWS, [[each.device, each.name] for each in listed])
        except BaseException:
            self._send(Kind.REFUSED)
            self.finish()
            raise
        self.plan = read_json(PLANNED, self._next(Kind.PLAN).payload)
        scans = [
            (scan.columns or [], table.schema.names) for scan, table in zip(self.plan.scans, self._open, strict=False)
        ]
        if len(self.plan.scans) != len(self._open) or any(not set(used) <= set(names) for used, names in scans):
            raise unannounced("a plan of other tables")
        self.schema, self.parameters = (read_schema(self._next(Kind.SCHEMA).payload) for _ in range(2))
        if not describe and self.plan.explain != "plan":
            self._send(Kind.FILES, [self._stored(number) for number in range(len(self._open))])

    def _stored(self, table: int) -> dict[str, Any] | None:
        """Return the Parquet files of a table: names, numbers, sizes, and the range of `seq`."""
        rows = self._open[table].stored(self.plan.scans[table])
        if rows is None:
            return None
        self._ends[table] = rows.end
        if rows.gaps:
            self._read[table] |= {"gaps": rows.gaps, "lost": rows.lost}
        files = [[file.name, number, file.size] for number, file in enumerate(rows.files, len(self._files))]
        self._files += rows.files
        if not files:
            return None
        return {
            "files": files,
            "first": rows.first,
            "last": rows.last,
            "whole": rows.whole,
            "columns": STORED_COLUMNS,
        }

    def _open_tables(self, names: list[tuple[str, str, str]]) -> None:
        lowered = {tuple(part.lower() for part in name) for name in names}
        if len(lowered) < len(names):
            raise RequestError("two tables differ only in upper and lower case", where="query")
        for name in names:
            table = self._tables.open(self._identity, list(name), self._check_time)
            self._opened.callback(table.close)
            self._open.append(table)
            self._names.append(name)
            self._read.append({"rows": 0})
            self._send(Kind.SCHEMA, table.schema.serialize())

    def lots(self) -> Generator[Lot, None, None]:
        """Yield the rows of the result, and empty lots while there are none."""
        try:
            yield []
            self._began = time.monotonic()
            while (frame := self._message()) is None or frame.kind != Kind.END:
                lot: Lot = []
                if frame is not None:
                    batch = read_rows(frame.payload, self.schema)
                    if batch.nbytes > self._limits.row_bytes:  # the worker sends more only for a single row
                        raise self._limit("row_bytes")
                    self.rows += batch.num_rows
                    if self.rows > self._limits.rows:
                        raise self._limit("rows")
                    lot.append(batch)
                self._left -= time.monotonic() - self._began
                yield lot
                self._began = time.monotonic()
            self._ended = True
        finally:
            self.close()

    def read_to_end(self) -> None:
        """Run the query without its rows, for `explain analyze`."""
        while (frame := self._message()) is None or frame.kind != Kind.END:
            pass
        self._ended = True

    def finish(self) -> None:
        """Read the end of a dialogue without rows."""
        self._next(Kind.END)
        self._ended = True

    def explained(self) -> pa.RecordBatch:
        """Return the plan, and for each table what the query needs of it and what was read."""
        rows = [("plan", self.plan.plan)]
        for name, scan, table, read in zip(self._names, self.plan.scans, self._open, self._read, strict=True):
            needed = {key: value for key, value in asdict(scan).items() if value is not None}
            facts = {**needed, **table.read()}
            if self.plan.explain == "analyze":
                facts["read_rows"] = read["rows"]
            rows.append((shown(name[1:]), ", ".join(f"{key}: {_text(value)}" for key, value in facts.items())))
        return pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], schema=EXPLAIN_SCHEMA)

    def summary(self) -> Mapping[str, Any]:
        """Return what was read of each table."""
        tables = zip(self._names, self._open, self._read, strict=True)
        return {"tables": {shown(name[1:]): {**table.read(), **read} for name, table, read in tables}}

    def close(self) -> None:
        """End the query, and give the worker back if it has ended by itself."""
        worker, self._worker = self._worker, None
        if worker is not None:
            if self._ended:
                self._workers.give_back(worker)
            else:
                self._workers.discard(worker)
        scans, self._scans = self._scans, {}
        for scan in scans.values():
            scan.close()  # type: ignore[attr-defined]
        self._opened.close()

    def _message(self) -> Frame | None:
        """Return the next frame that is not about rows of a table; None after a while without one."""
        assert self._worker is not None
        try:
            while not self._worker.pipe.waits(LOOK_SECONDS):
                frame = self._worker.pipe.receive()
                if frame.kind == Kind.FAILED:
                    self._ended = True
                    raise self._error(read_json(FAILURE, frame.payload))
                if frame.kind == Kind.READ:
                    self._give_bytes(frame)
                elif frame.kind == Kind.NEXT:
                    self._feed(frame)
                else:
                    return frame
                self._check_time()
        except EOFError:
            raise self._crash() from None
        self._check_time()
        return None

    def _next(self, kind: Kind) -> Frame:
        while (frame := self._message()) is None:
            pass
        if frame.kind != kind:
            raise RequestError("the query cannot be run", where="query")
        return frame

    def _give_bytes(self, asked: Frame) -> None:
        """Send bytes of a file, or the file itself, if the client may read all that is in it."""
        offset, size, takes_file = read_json(RANGE, asked.payload)
        if asked.number >= len(self._files):
            raise unannounced("the number of a file that it has not got")
        file = self._files[asked.number]
        if not 0 <= offset <= offset + size <= file.size:
            raise unannounced("a range that is outside of a file")
        content = b""
        try:
            descriptor = file.descriptor(offset, size) if takes_file and self._reads_all else None
            if descriptor is None:
                content = file.read(offset, size)
        except Exception as error:  # raised again when the worker has ended the query
            self._failure = error
            self._send(Kind.REFUSED)
            return
        if descriptor is None:
            self._send(Kind.BYTES, content)
            return
        assert self._worker is not None
        self._worker.pipe.send_file(descriptor)

    def _feed(self, asked: Frame) -> None:
        """Send the next rows of a scan to the worker, and read those after them while it works on these."""
        number = asked.number
        if number not in self._scans:
            (table,) = read_json(TABLE, asked.payload)
            if not 0 <= table < len(self._open):
                raise unannounced("the number of a table that it has not got")
            self._scans[number] = self._scan(table)
            self._ahead[number] = self._read_ahead(number)
        kind, rows = self._ahead.pop(number)
        if isinstance(rows, BaseException):
            self._failure, rows = rows, b""
        self._send(kind, rows)
        if kind == Kind.ROWS:
            self._ahead[number] = self._read_ahead(number)

    def _read_ahead(self, number: int) -> tuple[Kind, Any]:
        """Return the next answer about a scan: its rows, its end, or the error that reading it raised."""
        try:
            batch = next(self._scans[number], None)
            return (Kind.END, b"") if batch is None else (Kind.ROWS, batch.serialize())
        except Exception as error:  # raised again when the worker has ended the query
            return Kind.REFUSED, error

    def _scan(self, table: int) -> Generator[pa.RecordBatch, None, None]:
        narrowing = self.plan.scans[table]
        if end := self._ends.get(table, 0):
            narrowing = replace(narrowing, from_seq=max(end, narrowing.from_seq or 0))
        if narrowing.is_empty:
            return
        reading = self._open[table].scan(narrowing)
        columns = narrowing.columns or self._open[table].schema.names
        schema = pa.schema([self._open[table].schema.field(name) for name in columns])
        read = self._read[table]
        with ExitStack() as closing_lots:
            if not reading.is_whole:
                closing_lots.callback(reading.lots.close)  # type: ignore[attr-defined]
            for lot in reading.all_lots():
                for item in lot:
                    batch = item.batch if isinstance(item, Noted) else item
                    if batch.num_rows:
                        read["rows"] += batch.num_rows
                        yield batch.select(columns).cast(schema)
                self._check_time()
        for key in ("gaps", "lost"):
            if count := reading.summary().get(key):
                read[key] = read.get(key, 0) + count

    def _error(self, failure: Failure) -> BaseException:
        if self._failure is not None:
            return self._failure
        if failure.limit:
            return self._limit(failure.limit)
        return RequestError(failure.what, where=failure.where, hint=failure.hint)

    def _check_time(self) -> None:
        if time.monotonic() - self._began > self._left:
            raise self._limit("seconds")

    def _crash(self) -> FastFlightError:
        """Return the error for a worker that has ended in the middle of a query."""
        assert self._worker is not None
        code = self._worker.exit_code()
        if code == -signal.SIGABRT:  # C++ ends a process so when it gets no memory
            return self._limit("memory")
        how = signal.strsignal(-code) if code < 0 else f"exit status {code}"
        return SourceError(
            f"the process of this query has ended: {how}",
            where="query",
            hint="Send the query again. If it ends again, report the query: DuckDB cannot run it",
        )

    def _limit(self, name: str) -> QueryLimit:
        size = getattr(self._limits, "memory_bytes" if name == "memory" else name)
        unit = UNITS.get(name, name)
        return QueryLimit(f"it takes more than {size:,.12g} {unit}", limit=name, size=size, hint=HINTS[name])

    def _send(self, kind: Kind, payload: Any = b"") -> None:
        assert self._worker is not None
        try:
            self._worker.pipe.send(kind, payload)
        except EOFError:
            raise self._crash() from None


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
