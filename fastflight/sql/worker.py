"""The worker process: runs queries with DuckDB, one at a time, in a process that sees only the files of its folder.

The server starts it in this folder as `python -m fastflight.sql.worker DESCRIPTOR MEMORY THREADS ROW_BYTES` and speaks
to it as `frames` says. Each query gets a catalog of its own, in memory, which holds nothing but the tables that it
names.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset  # DuckDB imports it when it reads an Arrow table, when no file can be opened any more

from fastflight.errors import FastFlightError, QueryLimit, RequestError
from fastflight.simulator import sandbox
from fastflight.sql.database import Database
from fastflight.sql.frames import Frame, Kind, Pipe
from fastflight.sql.names import CATALOG
from fastflight.sql.parameters import parameter_schema
from fastflight.sql.statement import Statement, check

# Rows of the result that DuckDB gives at a time.
BATCH_ROWS = 65_536
# The size of a frame with rows.
BATCH_BYTES = 1 << 20
# Address space beside the memory that a query may use. DuckDB's threads reserve 400 MB of it, and its own limit does
# not count strings while they are made.
SPARE_BYTES = 832 << 20
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
Values = Sequence[Any] | Mapping[str, Any]


class Abandoned(Exception):
    """The server has ended the query."""


class Query:
    """One dialogue with the server."""

    def __init__(self, pipe: Pipe, database: Database, row_bytes: int) -> None:
        self._pipe = pipe
        self._database = database
        self._row_bytes = row_bytes

    def answer(self, asked: Frame) -> None:
        """Answer a query. Raises what is wrong with it."""
        request = asked.json()
        values = _row(self._pipe.receive().payload)
        database = self._database.connection
        statement = check(request["query"], database)
        self._make_tables(statement)
        database.execute(f"use {CATALOG}")
        bound = _bound(statement.parameters, None if request["describe"] else values)
        result = database.sql(statement.sql, params=bound)
        if request["describe"]:
            self._describe(statement, result)
        else:
            self._send_rows(result)
        self._pipe.send(Kind.END)

    def _make_tables(self, statement: Statement) -> None:
        """Ask the server for the tables that the statement names, and make them."""
        named = {"tables": statement.tables, "lists": statement.lists, "explains": statement.explain}
        self._pipe.send(Kind.TABLES, named)
        found = self._pipe.receive().json()
        if found is None:
            raise Abandoned
        for path, files in zip(statement.tables, found["tables"], strict=True):
            self._database.add(path, files)
        for schema, table in found["listed"]:
            if [CATALOG, schema, table] not in statement.tables:
                self._database.add_name(schema, table)

    def _describe(self, statement: Statement, result: duckdb.DuckDBPyRelation) -> None:
        self._pipe.send(Kind.SCHEMA, _columns(result).serialize())
        tables = [_columns(self._database.table(path)) for path in statement.tables if statement.parameters]
        self._pipe.send(Kind.SCHEMA, parameter_schema(statement.parameters, statement.nodes, tables).serialize())

    def _send_rows(self, result: duckdb.DuckDBPyRelation) -> None:
        with result.to_arrow_reader(BATCH_ROWS) as rows:
            schema = _plain(rows.schema)
            self._pipe.send(Kind.SCHEMA, schema.serialize())
            for batch in rows:
                for piece in self._pieces(batch.cast(schema)):
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


def _columns(result: duckdb.DuckDBPyRelation) -> pa.Schema:
    """Return the columns of a result, which does not run."""
    return _plain(result.limit(0).to_arrow_table().schema)


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
        with closing(Database(settings, Path.cwd())) as database, contextlib.suppress(duckdb.Error):
            while True:
                pipe.send(Kind.READY)
                if not _serve_one(pipe, database, row_bytes):
                    break  # after an error the database may be in any state
                database.renew()


def _serve_one(pipe: Pipe, database: Database, row_bytes: int) -> bool:
    """Answer a query. Return whether it has ended without an error."""
    asked = pipe.receive()
    try:
        Query(pipe, database, row_bytes).answer(asked)
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
        readable=(*READABLE, os.getcwd()),
    )
    with contextlib.suppress(EOFError):
        serve(Pipe(int(descriptor)), settings, int(row_bytes))


def _import_all(settings: Mapping[str, str]) -> None:
    """Run a query, so that DuckDB and Arrow have imported what they need before no file can be opened any more."""
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("x", pa.decimal128(5, 2))])
    time = datetime.datetime.now(datetime.UTC)
    with closing(Database(settings, Path.cwd())) as database:
        database.connection.register("t", pa.RecordBatchReader.from_batches(schema, []))
        with database.connection.sql("select * from t where time < $1", params=[time]).to_arrow_reader(1) as rows:
            rows.read_all()
    pa.scalar(time).as_py()


if __name__ == "__main__":
    main(*sys.argv[1:])
