"""One query: the server's side of the dialogue with a worker process.

The server puts the tables that the query names into the worker's folder. The rows of the result come back in the thread
that iterates over them. A query that is closed, or reaches a limit, is ended by killing its worker.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Generator, Mapping
from typing import Any

import pyarrow as pa

from fastflight.access.identity import Identity
from fastflight.errors import FastFlightError, QueryLimit, RequestError, SourceError
from fastflight.service.source import Batches
from fastflight.sql.frames import Frame, Kind
from fastflight.sql.names import STANDARD, shown
from fastflight.sql.process import Worker, Workers
from fastflight.sql.results import FAILURE, NAMED, Failure, Named, read_json, read_rows, read_schema, unannounced
from fastflight.sql.tables import Tables

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
        self._limits = workers.limits
        self._left = self._limits.seconds
        # By the name of a table: what is known of its rows.
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._explains = False
        self._ended = False
        self.rows = 0
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
            files = self._files(named)
        except BaseException:
            self._send(Kind.FILES, b"null")
            self.finish()
            raise
        self._send(Kind.FILES, files)
        self.schema = read_schema(self._next(Kind.SCHEMA).payload)
        if describe:
            self.parameters = read_schema(self._next(Kind.SCHEMA).payload)
        self._explains = named.explains and not describe
        if self._explains and not self.schema.equals(EXPLAIN_SCHEMA):
            raise unannounced("a plan with other columns")

    def _files(self, named: Named) -> dict[str, Any]:
        """Put the tables that the query names into the worker's folder, and return the names of their files."""
        assert self._worker is not None
        files = []
        for name in named.tables:
            table = self._tables.open(self._identity, name, self._worker.folder, self._check_time)
            self._facts[shown(name[1:])] = table.facts
            files.append({"arrow": table.arrow, "parquet": table.parquet})
        listed = [[each.device, each.name] for each in self._tables.listing(self._identity)] if named.lists else []
        if named.lists and (unlisted := self._tables.unlisted(self._identity)):
            self._facts[STANDARD] = unlisted
        return {"tables": files, "listed": listed}

    def batches(self) -> Generator[Batches, None, None]:
        """Yield the rows of the result, and empty lists while there are none."""
        try:
            yield []
            self._began = time.monotonic()
            while (frame := self._message()) is None or frame.kind != Kind.END:
                ready: Batches = []
                if frame is not None:
                    batch = read_rows(frame.payload, self.schema)
                    if batch.nbytes > self._limits.row_bytes:  # the worker sends more only for a single row
                        raise self._limit("row_bytes")
                    self.rows += batch.num_rows
                    if self.rows > self._limits.rows:
                        raise self._limit("rows")
                    ready.append(batch)
                    self._check_time()
                self._left -= time.monotonic() - self._began
                yield ready
                self._began = time.monotonic()
            self._ended = True
            if self._explains and self._facts:
                yield [self._explained()]
        finally:
            self.close()

    def finish(self) -> None:
        """Read the end of a dialogue without rows."""
        self._next(Kind.END)
        self._ended = True

    def _explained(self) -> pa.RecordBatch:
        """Return what is known of each table, as rows of an `explain`."""
        texts = [", ".join(f"{key}: {value}" for key, value in facts.items()) for facts in self._facts.values()]
        return pa.record_batch([pa.array([*self._facts]), pa.array(texts)], schema=EXPLAIN_SCHEMA)

    def summary(self) -> Mapping[str, Any]:
        """Return what is known of each table."""
        return {"tables": self._facts}

    def close(self) -> None:
        """End the query, and give the worker back if it has ended by itself."""
        worker, self._worker = self._worker, None
        if worker is not None:
            if self._ended:
                self._workers.give_back(worker)
            else:
                self._workers.discard(worker)

    def _message(self) -> Frame | None:
        """Return the next frame; None after a while without one."""
        assert self._worker is not None
        try:
            if self._worker.pipe.waits(LOOK_SECONDS):
                self._check_time()
                return None
            frame = self._worker.pipe.receive()
        except EOFError:
            raise self._crash() from None
        if frame.kind == Kind.FAILED:
            self._ended = True
            raise self._error(read_json(FAILURE, frame.payload))
        return frame

    def _next(self, kind: Kind) -> Frame:
        while (frame := self._message()) is None:
            pass
        if frame.kind != kind:
            raise RequestError("the query cannot be run", where="query")
        return frame

    def _error(self, failure: Failure) -> BaseException:
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
