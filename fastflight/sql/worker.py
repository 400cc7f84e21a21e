"""The worker process: runs queries with DuckDB, one at a time, in a process that can open no file and no socket.

The server starts it as `python -m fastflight.sql.worker DESCRIPTOR MEMORY THREADS ROW_BYTES` and speaks to it as
`frames` says. Each query gets catalogs of its own, in memory, which hold nothing but the tables that it names.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset  # DuckDB imports it when it reads an Arrow table, when no file can be opened any more

from fastflight.errors import FastFlightError, QueryLimit, RequestError
from fastflight.simulator import sandbox
from fastflight.sql.databases import Abandoned, Databases, Rows, Scans
from fastflight.sql.frames import Frame, Kind, Pipe
from fastflight.sql.names import CATALOG, quoted
from fastflight.sql.parameters import parameter_schema
from fastflight.sql.pushdown import Narrowing, Plan, narrowing_of
from fastflight.sql.statement import Statement, check

# Rows of the result that DuckDB gives at a time.
BATCH_ROWS = 65_536
# The size of a frame with rows.
BATCH_BYTES = 1 << 20
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


class Query:
    """One dialogue with the server."""

    def __init__(self, pipe: Pipe, databases: Databases, row_bytes: int) -> None:
        self._pipe = pipe
        self._databases = databases
        self._row_bytes = row_bytes

    def answer(self, asked: Frame) -> None:
        """Answer a query. Raises what is wrong with it."""
        request = asked.json()
        values = _row(self._pipe.receive().payload)
        planner = self._databases.planner
        statement = check(request["query"], planner)
        self._databases.set_clock(datetime.datetime.now(datetime.UTC))
        schemas = self._ask_for_schemas(statement, planner)
        planner.execute(f"use {CATALOG}")
        described = request["describe"]
        bound = _bound(statement.parameters, None if described else values)
        announced = _plain(planner.sql(statement.sql, params=bound).limit(0).to_arrow_table().schema)
        narrowings = self._narrowings(planner, statement, bound, schemas)
        text = planner.execute(f"explain {statement.sql}", bound).fetchall()[0][1] if statement.explain else ""
        plan = {
            "explain": statement.explain,
            "scans": [asdict(each) for each in narrowings],
            "plan": text,
        }
        self._pipe.send(Kind.PLAN, plan)
        self._pipe.send(Kind.SCHEMA, announced.serialize())
        self._pipe.send(Kind.SCHEMA, parameter_schema(statement.parameters, statement.nodes, schemas).serialize())
        if not described and statement.explain != "plan":
            self._run(statement, bound, schemas, narrowings, announced)
        self._pipe.send(Kind.END)

    def _ask_for_schemas(self, statement: Statement, planner: duckdb.DuckDBPyConnection) -> list[pa.Schema]:
        """Ask the server for the tables of the statement. Make them in the planner, without rows."""
        self._pipe.send(Kind.TABLES, {"tables": statement.tables, "lists": statement.lists})
        schemas = [self._schema() for _ in statement.tables]
        for path, schema in zip(statement.tables, schemas, strict=True):
            rows = self._databases.register(planner, schema.empty_table())
            _make(planner, "table", path, f"from {rows}")
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
        self,
        statement: Statement,
        bound: Values | None,
        schemas: list[pa.Schema],
        narrowings: list[Narrowing],
        announced: pa.Schema,
    ) -> None:
        scans = Scans(self._pipe)
        database = self._databases.runner
        stored = self._expect(Kind.FILES).json()
        for number, path in enumerate(statement.tables):
            columns, schema = narrowings[number].columns, schemas[number]
            scanned = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            rows_name = self._databases.register(database, Rows(scans, number, scanned))
            types = self._databases.planner.execute(f"describe from {'.'.join(map(quoted, path))}").fetchall()
            # Columns that are not read have their types all the same.
            selected = (
                quoted(name) if name in scanned.names else f"null::{type_} as {quoted(name)}"
                for name, type_, *_ in types
            )
            query = f"from {rows_name} select {', '.join(selected)}"
            if (files := stored[number]) is not None:
                from_files = self._select_stored(scans, files, types)
                query = from_files if files["whole"] else f"{from_files} union all {query}"
            _make(database, "view", path, query)
        database.execute(f"use {CATALOG}")
        with database.sql(statement.sql, params=bound).to_arrow_reader(BATCH_ROWS) as rows:
            if not _plain(rows.schema).equals(announced):
                raise RequestError(
                    "the columns got other types when the query ran than when it was planned",
                    where="query",
                    hint="Cast them to the types that you need",
                )
            for batch in rows:
                if statement.explain == "":
                    for piece in self._pieces(batch.cast(announced)):
                        self._pipe.send(Kind.ROWS, piece.serialize())

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch into pieces of at most `BATCH_BYTES`, or of one row.

        So the server sends one while DuckDB makes the next. `QueryLimit` for a row that is larger than allowed.
        """
        if batch.nbytes <= BATCH_BYTES:
            if batch.num_rows:
                yield batch
        elif batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._pieces(batch.slice(0, half))
            yield from self._pieces(batch.slice(half))
        elif batch.nbytes <= self._row_bytes:
            yield batch
        else:
            raise QueryLimit("a row of the result is too large", limit="row_bytes", size=self._row_bytes)

    def _select_stored(self, scans: Scans, files: Mapping[str, Any], types: Sequence[Sequence[Any]]) -> str:
        """Return the query for the rows that are in files, with columns of these names and types."""
        paths = [self._databases.files.add(scans, *file) for file in files["files"]]
        of = files["columns"]
        columns = ", ".join(f"({of[name]})::{type_} as {quoted(name)}" for name, type_, *_ in types)
        inside = f"{of['seq']} between {files['first']} and {files['last']}"
        return f"from read_parquet({paths}) select {columns} where {inside}"

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


def _row(payload: bytes) -> dict[str, Any]:
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
    if isinstance(error, QueryLimit):
        return {"limit": error.limit}
    if isinstance(error, FastFlightError):
        return {"what": error.what, "where": error.where, "hint": error.hint}
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError | pa.ArrowMemoryError):
        return {"limit": "memory"}
    if isinstance(error, ABOUT_QUERY):
        return {"what": str(error).strip(), "where": "query"}
    return {"what": f"DuckDB cannot run this query ({type(error).__name__})", "where": "query"}


def serve(pipe: Pipe, settings: Mapping[str, str], row_bytes: int) -> None:
    """Answer queries until the server closes the pipe."""
    while True:
        with closing(Databases(settings)) as databases, contextlib.suppress(duckdb.Error):
            while True:
                pipe.send(Kind.READY)
                if not _serve_one(pipe, databases, row_bytes) or databases.used_up:
                    break  # after an error the databases may be in any state
                databases.renew()


def _serve_one(pipe: Pipe, databases: Databases, row_bytes: int) -> bool:
    """Answer a query. Return whether it has ended without an error."""
    asked = pipe.receive()
    try:
        Query(pipe, databases, row_bytes).answer(asked)
        return True
    except Abandoned:
        pipe.send(Kind.END)
    except (duckdb.Error, FastFlightError, pa.ArrowException, MemoryError, RecursionError, ValueError) as error:
        pipe.send(Kind.FAILED, _failure(error))
    return False


def main(descriptor: str, memory: str, threads: str, row_bytes: str) -> None:
    """Run until the server closes its end of the socket `descriptor`. `memory` and `row_bytes` are in bytes."""
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
        serve(Pipe(socket.socket(fileno=int(descriptor))), settings, int(row_bytes))


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
