"""Prepared statements: whose they are, when they end, and how many there may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fastflight.errors import ResourceExhausted, UnknownName
from fastflight.server.prepared import LIFETIME_SECONDS, MAX_STATEMENTS, MAX_STATEMENTS_BYTES, PreparedStatements
from tests.support.clock import ManualClock
from tests.support.refusals import refused

SCHEMA = pa.schema({"n": pa.int64()})


def add(statements: PreparedStatements, query: str, owner: str) -> bytes:
    return statements.add(query, SCHEMA, pa.schema([]), owner)


def test_a_statement_belongs_to_the_identity_that_has_prepared_it() -> None:
    statements = PreparedStatements()
    handle = add(statements, "select ?", "alice")
    statements.bind(handle, "alice", [1])
    assert statements.get(handle, "alice").parameters == (1,)
    statements.close(handle, "bob")
    for other in ("bob", ""):
        with pytest.raises(UnknownName, match="no such prepared statement"):
            statements.get(handle, other)
    statements.close(handle, "alice")
    with pytest.raises(UnknownName):
        statements.get(handle, "alice")


def test_a_statement_ends_when_it_is_not_used() -> None:
    clock = ManualClock()
    statements = PreparedStatements(clock)
    used, unused = add(statements, "select 1", ""), add(statements, "select 2", "")
    clock.now = LIFETIME_SECONDS * 0.9
    statements.get(used, "")
    clock.now = LIFETIME_SECONDS * 1.1
    assert statements.get(used, "").query == "select 1"
    with pytest.raises(UnknownName):
        statements.get(unused, "")
    assert len(statements) == 1


def test_there_is_a_limit_for_their_number_and_for_their_bytes() -> None:
    clock = ManualClock()
    statements = PreparedStatements(clock)
    handles = [add(statements, "select 1", "") for _ in range(MAX_STATEMENTS)]
    with refused(ResourceExhausted, scope="server", limit=MAX_STATEMENTS):
        add(statements, "select 1", "")
    statements.close(handles[0], "")
    with refused(ResourceExhausted, scope="server", limit=MAX_STATEMENTS_BYTES):
        add(statements, "x" * MAX_STATEMENTS_BYTES, "")
    with refused(ResourceExhausted, scope="server", limit=MAX_STATEMENTS_BYTES):
        statements.bind(handles[1], "", ["x" * MAX_STATEMENTS_BYTES])
    assert statements.get(handles[1], "").parameters == ()
    clock.now = LIFETIME_SECONDS * 1.1
    add(statements, "select 1", "")
    assert len(statements) == 1
