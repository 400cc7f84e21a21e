"""Flight SQL: turns its queries into ordinary `sql` requests, and answers what it asks about tables and the server.

A query becomes the ticket of a `sql` request, so it runs as every other request does: with the same checks, limits and
metrics. Metadata is small, and is made whole. Everything else is refused with `Unsupported`, which clients get as
UNIMPLEMENTED. This module needs the extra `sql`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from fastflight.access.action import RawAction
from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError, Unsupported
from fastflight.protocol import flight_sql as wire
from fastflight.server import sql_info, sql_metadata
from fastflight.server.incoming import Incoming
from fastflight.server.prepared import PreparedStatements
from fastflight.server.sql_commands import CLOSE, CLOSE_SESSION, CREATE, UNSUPPORTED_ACTIONS, SqlAnswer
from fastflight.service.choices import MAX_REQUEST_BYTES
from fastflight.sql.engine import SqlEngine

# Flight.proto: CloseSessionResult with the status CLOSED. There are no sessions, so nothing is left of one.
CLOSED = b"\x08\x01"
# Parameters of these types are the same in JSON.
IN_JSON = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
AS_TEXT = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_decimal)


class FlightSql:
    """Answers the commands and actions of Flight SQL for one server."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
        self._statements = PreparedStatements()

    def resolve(self, command: bytes, identity: Identity) -> SqlAnswer:
        """Return how to answer a command."""
        match asked := wire.decode(command):
            case wire.CommandStatementQuery(query, transaction_id):
                _refuse_transaction(transaction_id)
                return SqlAnswer(_ticket(query))
            case wire.CommandPreparedStatementQuery(handle):
                statement = self._statements.get(handle, owner_of(identity))
                return SqlAnswer(_ticket(statement.query, statement.parameters), statement.schema)
            case wire.CommandGetSqlInfo(numbers):
                return SqlAnswer(command, sql_info.SCHEMA, lambda check: sql_info.sql_info(numbers))
            case (
                wire.CommandGetCatalogs()
                | wire.CommandGetDbSchemas()
                | wire.CommandGetTables()
                | wire.CommandGetTableTypes()
            ):
                read = partial(sql_metadata.answer, asked, self._engine.tables, identity)
                return SqlAnswer(command, sql_metadata.schema_of(asked), read)
        raise Unsupported("not a command", where=type(asked).__name__)

    def bind(self, command: bytes, owner: str, parameters: Incoming) -> None:
        """Set the parameters of a prepared statement of `owner`, the name of an identity or empty."""
        match asked := wire.decode(command):
            case wire.CommandPreparedStatementQuery(handle):
                statement = self._statements.get(handle, owner)
                self._statements.bind(handle, owner, _row_of(parameters, len(statement.parameter_schema)))
                return
        raise Unsupported("this server only reads", where=type(asked).__name__)

    def actions(self) -> list[RawAction]:
        """Return the actions of Flight SQL."""

        def close_session(body: bytes, identity: Identity) -> Iterator[bytes]:
            yield CLOSED

        def refuse(name: str, body: bytes, identity: Identity) -> Iterator[bytes]:
            raise Unsupported("this part of Flight SQL is not supported", where=name, hint="This server only reads")

        return [
            RawAction(CREATE, "Prepare a query (protobuf, see FlightSql.proto).", self._create, at_once=False),
            RawAction(CLOSE, "Forget a prepared query (protobuf, see FlightSql.proto).", self._close),
            RawAction(CLOSE_SESSION, "There are no sessions: does nothing (protobuf).", close_session),
            *(RawAction(name, "", partial(refuse, name), listed=False) for name in UNSUPPORTED_ACTIONS),
        ]

    def _create(self, body: bytes, identity: Identity) -> Iterator[bytes]:
        asked = wire.decode(body)
        if not isinstance(asked, wire.ActionCreatePreparedStatementRequest):
            raise RequestError("not the body of this action", where=CREATE)
        _refuse_transaction(asked.transaction_id)
        _ticket(asked.query)  # refuses a query that is too long
        prepared = self._engine.prepare(asked.query, identity)
        handle = self._statements.add(asked.query, prepared.schema, prepared.parameters, owner_of(identity))
        schemas = (bytes(schema.serialize()) for schema in (prepared.schema, prepared.parameters))
        yield wire.encode(wire.ActionCreatePreparedStatementResult(handle, *schemas))

    def _close(self, body: bytes, identity: Identity) -> Iterator[bytes]:
        asked = wire.decode(body)
        if not isinstance(asked, wire.ActionClosePreparedStatementRequest):
            raise RequestError("not the body of this action", where=CLOSE)
        self._statements.close(asked.prepared_statement_handle, owner_of(identity))
        yield from ()


def owner_of(identity: Identity) -> str:
    """Return the owner of what a caller prepares; empty on a server without authentication."""
    return "" if identity is ANYBODY else identity.name


def _ticket(query: str, parameters: Iterable[Any] = ()) -> bytes:
    """Return the `sql` request for a query. Raise `RequestError` if it is too long for a request."""
    values = list(parameters)
    ticket = json.dumps({"type": "sql", "query": query, **({"parameters": values} if values else {})}).encode()
    if len(ticket) > MAX_REQUEST_BYTES:
        raise RequestError(f"{len(ticket)} bytes are too many: {MAX_REQUEST_BYTES} are allowed", where="query")
    return ticket


def _refuse_transaction(transaction_id: bytes | None) -> None:
    if transaction_id:
        raise Unsupported("there are no transactions", where="transaction_id", hint="This server only reads")


def _row_of(batches: Incoming, count: int) -> list[Any]:
    """Return the values of the one row in `batches`, as a JSON request has them."""
    values: list[Any] | None = None
    for batch in batches:
        if batch.num_rows + (values is not None) > 1:
            raise Unsupported("bind one row of parameters at a time", where="do_put", hint="Execute after each row")
        if batch.num_rows:
            values = [_value(column[0], name) for column, name in zip(batch.columns, batch.schema.names, strict=True)]
    if len(values or ()) != count:
        raise RequestError(f"the query has {count} parameters, not {len(values or ())}", where="parameters")
    return values or []


def _value(scalar: pa.Scalar, name: str) -> Any:
    """Return a parameter as JSON has it: times and decimals as text, which the engine reads as their type."""
    if not scalar.is_valid or any(is_of(scalar.type) for is_of in IN_JSON):
        return scalar.as_py()
    if pa.types.is_floating(scalar.type):
        value = scalar.as_py()
        return value if math.isfinite(value) else str(value)
    try:
        if any(is_of(scalar.type) for is_of in AS_TEXT):
            return scalar.cast(pa.string()).as_py()
    except pa.ArrowException:  # a unit or a time zone that Arrow does not write
        pass
    raise Unsupported(f"parameters of type {scalar.type} are not supported", where=name)
