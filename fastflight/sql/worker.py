"""The worker process: runs queries with DuckDB, one at a time, in a process that can open no file and no socket.

The server starts it as `python -m fastflight.sql.worker DESCRIPTOR MEMORY THREADS` and speaks to it as `frames` says.
Each query gets catalogs of its own, in memory, which hold nothing but the tables that it names.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset  # DuckDB imports it when it reads an Arrow table, when no file can be opened any more

from fastflight.errors import FastFlightError, RequestError
from fastflight.simulator import sandbox
from fastflight.sql.frames import Frame, Kind, Pipe
from fastflight.sql.names import CATALOG, quoted
from fastflight.sql.pushdown import Narrowing, Plan, narrowing_of
from fastflight.sql.statement import Statement, check

# Rows of the result in a frame.
BATCH_ROWS = 65_536
# What Python, Arrow and DuckDB take beside the memory that a query may use. DuckDB's own limit does not count strings
# while they are made.
SPARE_BYTES = 512 << 20
# What DuckDB reads when it makes a catalog: the limits of this process.
READABLE = ("/proc/self", "/sys/fs/cgroup")
# Errors whose text is about the query. The text of other errors may name files of the server, so no client gets it.
ABOUT_QUERY = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.InvalidTypeException,
    duckdb.NotImplementedException,
    duckdb.OutOfRangeException,
    duckdb.TypeMismatchException,
)
# These optimizers use the content of tables. Those of the planner are empty.
BY_CONTENT = "statistics_propagation,late_materialization"
Values = Sequence[Any] | Mapping[str, Any]


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
    """Two databases for one query: one plans it over empty tables, the other runs it.

    Opening them takes 25 ms, so a worker does it before the query comes.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.planner, self.runner = (duckdb.connect(":memory:", config=dict(settings)) for _ in range(2))
        for each in (self.planner, self.runner):
            each.execute(f"attach ':memory:' as {CATALOG}")
            each.execute("set TimeZone = 'UTC'")
            each.execute("set enable_external_access = false")
        self.runner.execute("set lock_configuration = true")

    def close(self) -> None:
        """Close both."""
        self.planner.close()
        self.runner.close()


class Query:
    """One dialogue with the server."""

    def __init__(self, pipe: Pipe, databases: Databases) -> None:
        self._pipe = pipe
        self._databases = databases

    def answer(self, asked: Frame) -> None:
        """Answer a query. Raises what is wrong with it."""
        request = asked.json()
        values = _row(self._pipe.receive().payload)
        planner = self._databases.planner
        statement = check(request["query"], planner)
        schemas = self._ask_for_schemas(statement, planner)
        planner.execute(f"use {CATALOG}")
        described = request["describe"]
        bound = _bound(statement.parameters, None if described else values)
        result = planner.sql(statement.sql, params=bound).limit(0).to_arrow_table().schema
        narrowings = self._narrowings(planner, statement, bound, schemas)
        text = planner.execute(f"explain {statement.sql}", bound).fetchall()[0][1] if statement.explain else ""
        plan = {
            "explain": statement.explain,
            "parameters": statement.parameters,
            "scans": [asdict(each) for each in narrowings],
            "plan": text,
        }
        self._pipe.send(Kind.PLAN, plan)
        self._pipe.send(Kind.SCHEMA, _plain(result).serialize())
        if not described and statement.explain != "plan":
            self._run(statement, bound, schemas, narrowings)
        self._pipe.send(Kind.END)

    def _ask_for_schemas(self, statement: Statement, planner: duckdb.DuckDBPyConnection) -> list[pa.Schema]:
        """Ask the server for the tables of the statement. Make them in the planner, without rows."""
        self._pipe.send(Kind.TABLES, {"tables": statement.tables, "lists": statement.lists})
        schemas = [self._schema() for _ in statement.tables]
        for number, (path, schema) in enumerate(zip(statement.tables, schemas, strict=True)):
            planner.register(f"table{number}", schema.empty_table())
            _make(planner, "table", path, f"from temp.main.table{number}")
        if statement.lists:
            for schema_name, table in self._expect(Kind.ROWS).json():
                for database in (planner, self._databases.runner):
                    _make(database, "table", [CATALOG, schema_name, table], "select 1")
        return schemas

    def _narrowings(
        self, planner: duckdb.DuckDBPyConnection, statement: Statement, bound: Values | None, schemas: list[pa.Schema]
    ) -> list[Narrowing]:
        """Return what the statement needs of each of its tables."""
        if not statement.tables:
            return []
        planner.execute(f"set disabled_optimizers = '{BY_CONTENT}'")
        filtered = _plan(planner, statement, bound)
        planner.execute(f"set disabled_optimizers = '{BY_CONTENT},filter_pushdown'")
        unfiltered = _plan(planner, statement, bound)
        planner.execute(f"set disabled_optimizers = '{BY_CONTENT}'")
        return [
            narrowing_of(path, count, filtered, unfiltered, schema.names)
            for path, count, schema in zip(statement.tables, statement.counts, schemas, strict=True)
        ]

    def _run(
        self, statement: Statement, bound: Values | None, schemas: list[pa.Schema], narrowings: list[Narrowing]
    ) -> None:
        scans = Scans(self._pipe)
        database = self._databases.runner
        for number, path in enumerate(statement.tables):
            columns, schema = narrowings[number].columns, schemas[number]
            scanned = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            database.register(f"table{number}", Rows(scans, number, scanned))
            types = self._databases.planner.execute(f"describe from {'.'.join(map(quoted, path))}").fetchall()
            # Columns that are not read have their types all the same.
            selected = (
                quoted(name) if name in scanned.names else f"null::{type_} as {quoted(name)}"
                for name, type_, *_ in types
            )
            _make(database, "view", path, f"from temp.main.table{number} select {', '.join(selected)}")
        database.execute(f"use {CATALOG}")
        with database.sql(statement.sql, params=bound).to_arrow_reader(BATCH_ROWS) as rows:
            schema = _plain(rows.schema)
            for batch in rows:
                if statement.explain == "":
                    self._pipe.send(Kind.ROWS, batch.cast(schema).serialize())

    def _expect(self, kind: Kind) -> Frame:
        frame = self._pipe.receive()
        if frame.kind != kind:
            raise Abandoned
        return frame

    def _schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self._expect(Kind.SCHEMA).payload))


def _make(database: duckdb.DuckDBPyConnection, kind: str, path: Sequence[str], query: str) -> None:
    catalog, schema, table = map(quoted, path)
    database.execute(f"create schema if not exists {catalog}.{schema}")
    database.execute(f"create {kind} if not exists {catalog}.{schema}.{table} as {query}")  # quoted names


def _plan(planner: duckdb.DuckDBPyConnection, statement: Statement, bound: Values | None) -> Plan:
    found = planner.execute(f"explain (format json) {statement.sql}", bound).fetchall()
    plan: Plan = json.loads(found[0][1])
    return plan


def _bound(names: Sequence[str], values: Mapping[str, Any] | None) -> Values | None:
    """Return the values of parameters as DuckDB takes them; null for all if `values` is None."""
    if not names:
        return None
    if values is None:
        values = dict.fromkeys(names)
    missing = [name for name in names if name not in values]
    if missing:
        raise RequestError("this parameter has no value", where=f"parameter {missing[0]}", hint="Send `parameters`")
    return [values[name] for name in names] if all(map(str.isdigit, names)) else {name: values[name] for name in names}


def _row(payload: bytearray) -> dict[str, Any]:
    """Return the parameters of a query, which come as a table of one row."""
    if not payload:
        return {}
    with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    return rows[0] if rows else {}


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with plain columns instead of dictionaries, which an enumeration of DuckDB becomes."""
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
    )


def _failure(error: BaseException) -> dict[str, str]:
    """Return an error as the server raises it again."""
    if isinstance(error, FastFlightError):
        return {"what": error.what, "where": error.where, "hint": error.hint}
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError | pa.ArrowMemoryError):
        return {"limit": "memory"}
    if isinstance(error, ABOUT_QUERY):
        return {"what": str(error).strip(), "where": "query"}
    return {"what": f"DuckDB cannot run this query ({type(error).__name__})", "where": "query"}


def serve(pipe: Pipe, settings: Mapping[str, str]) -> None:
    """Answer queries until the server closes the pipe."""
    while True:
        with closing(Databases(settings)) as databases:
            pipe.send(Kind.READY)
            _serve_one(pipe, databases)


def _serve_one(pipe: Pipe, databases: Databases) -> None:
    asked = pipe.receive()
    try:
        Query(pipe, databases).answer(asked)
    except Abandoned:
        pipe.send(Kind.END)
    except (duckdb.Error, FastFlightError, pa.ArrowException, MemoryError, RecursionError, ValueError) as error:
        pipe.send(Kind.FAILED, _failure(error))


def main(descriptor: str, memory: str, threads: str) -> None:
    """Run until the server closes its end of the socket `descriptor`. `memory` is in bytes."""
    settings = {
        "memory_limit": f"{memory}B",
        "threads": threads,
        "temp_directory": "",
        "max_temp_directory_size": "0B",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "python_enable_replacements": "false",
    }
    _import_all(settings)
    # Descriptors stay open, so nothing but the socket must be inherited.
    sandbox.enter(
        os.path.dirname(os.__file__),
        file_size=0,
        memory=int(memory) + SPARE_BYTES,
        readable=READABLE,
    )
    with contextlib.suppress(EOFError):
        serve(Pipe(socket.socket(fileno=int(descriptor))), settings)


def _import_all(settings: Mapping[str, str]) -> None:
    """Run a query, so that DuckDB and Arrow have imported what they need before no file can be opened any more."""
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("x", pa.decimal128(5, 2))])
    time = datetime.datetime.now(datetime.UTC)
    with closing(Databases(settings)) as databases:
        database = databases.planner
        database.register("t", pa.RecordBatchReader.from_batches(schema, []))
        with database.sql("select * from t where time < $1", params=[time]).to_arrow_reader(1) as rows:
            rows.read_all()
    pa.scalar(time).as_py()


if __name__ == "__main__":
    main(*sys.argv[1:])
