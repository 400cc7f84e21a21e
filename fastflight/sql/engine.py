"""`SqlEngine` runs queries, and `SqlSource` serves it as the request type `sql`.

A query runs in the calling thread; the work is done in a worker process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError
from fastflight.service.requests import FILE_SUMMARY, MAX_PARAMETERS, MAX_QUERY_CHARACTERS, Sql
from fastflight.service.resolve import plain
from fastflight.service.source import DataSource, Estimate, Reading
from fastflight.sql.process import SqlLimits, Workers
from fastflight.sql.run import Run
from fastflight.sql.tables import Tables
from fastflight.tables.summary import combined

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any] | pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a query before it runs.

    `parameters` has a field for each parameter, in order: `1`, `2`, ... for `?`, else its name. One whose type the
    query does not tell is a string, which DuckDB converts.
    """

    schema: pa.Schema
    parameters: pa.Schema


class SqlEngine:
    """Runs the queries of one server over `tables`, which lists them."""

    def __init__(self, tables: Tables, limits: SqlLimits | None = None, folder: Path | None = None) -> None:
        """`folder` is that of the recordings, which need not exist."""
        self.tables = tables
        self._workers = Workers(limits or SqlLimits(), folder)

    def prepare(self, query: str, identity: Identity = ANYBODY) -> Prepared:
        """Check a query and return its columns and parameters. `RequestError` if it is not one that only reads."""
        _check(query)
        with closing(Run(self.tables, self._workers, identity)) as run:
            run.ask(query, None, describe=True)
            run.finish()
            return Prepared(run.schema, run.parameters)

    def execute(self, query: str, identity: Identity = ANYBODY, parameters: Parameters = None) -> Reading:
        """Run a query. Closing the answer ends it.

        `parameters` are values in order or by name, or a batch with one row. `RequestError` for what is wrong with the
        query, `QueryLimit` if it reaches a limit, and what reading the tables raises.
        """
        _check(query)
        row = _one_row(parameters)
        run = Run(self.tables, self._workers, identity)
        try:
            run.ask(query, row)
            batches = run.batches()
            next(batches)  # closing a generator that has not begun would not end the query
            return Reading(run.schema, batches, run.summary)
        except BaseException:
            run.close()
            raise

    def close(self) -> None:
        """End idle workers. Running queries end with their streams."""
        self._workers.close()


class SqlSource(DataSource[Sql]):
    """The source of `sql` requests."""

    request = Sql

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def read(self, request: Sql) -> Reading:
        reading = self._engine.execute(request.query, _identity(request), request.parameters)
        summary = combined(reading.summary().get("tables", {}).values())
        metadata = {**(reading.schema.metadata or {}), FILE_SUMMARY: json.dumps(summary).encode()}
        return replace(reading, schema=reading.schema.with_metadata(metadata)) if summary else reading

    def describe(self, request: Sql) -> Estimate:
        return Estimate(self._engine.prepare(request.query, _identity(request)).schema)


def _identity(request: Sql) -> Identity:
    return request._identity or ANYBODY


def _check(query: str) -> None:
    """Raise `RequestError` for a query that is too long, or that is not Unicode."""
    if len(query) > MAX_QUERY_CHARACTERS:
        raise RequestError(f"more than {MAX_QUERY_CHARACTERS} characters", where="query")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise RequestError("not Unicode", where="query") from None


def _one_row(parameters: Parameters) -> pa.RecordBatch | None:
    """Return parameters as a batch of one row, with times in UTC. `RequestError` if they are something else."""
    if parameters is None:
        return None
    batch: Any = parameters
    if isinstance(parameters, Mapping | Sequence):
        named = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters, 1))
        try:
            batch = pa.RecordBatch.from_pydict({str(name): pa.array([value]) for name, value in named.items()})
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"not values that Arrow can hold: {error}", where="parameters") from None
    if batch.num_columns > MAX_PARAMETERS:
        raise RequestError(f"more than {MAX_PARAMETERS} parameters", where="parameters")
    if batch.num_columns and batch.num_rows != 1:
        raise RequestError(f"{batch.num_rows} rows are not one", where="parameters", hint="Send one row of values")
    utc = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz
        else field
        for field in plain(batch.schema)
    ]
    return batch.cast(pa.schema(utc))
