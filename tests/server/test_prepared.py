"""Prepared statements: whose they are, when they end, and how many there may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fastflight.errors import RequestError, UnknownName
from fastflight.server.prepared import (
    LIFETIME_SECONDS,
    MAX_OWNER_BYTES,
    MAX_OWNER_STATEMENTS,
    MAX_STATEMENTS,
    MAX_STATEMENTS_BYTES,
    PreparedStatements,
)
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


def has(statements: PreparedStatements, handle: bytes, owner: str) -> bool:
    try:
        return bool(statements.get(handle, owner))
    except UnknownName:
        return False


def test_an_owner_who_takes_too_many_loses_those_not_used_for_longest() -> None:
    statements = PreparedStatements()
    others = add(statements, "select 1", "bob")
    handles = [add(statements, "select 1", "eve") for _ in range(MAX_OWNER_STATEMENTS)]
    assert has(statements, handles[0], "eve")  # which uses it
    add(statements, "select 1", "eve")
    assert [has(statements, handle, "eve") for handle in handles[:3]] == [True, False, True]
    for _ in range(MAX_STATEMENTS):
        add(statements, "select 1", "eve")
    assert has(statements, others, "bob") and len(statements) == 1 + MAX_OWNER_STATEMENTS


def test_in_a_full_server_the_owner_of_most_makes_room() -> None:
    statements = PreparedStatements()
    few = {owner: add(statements, "select 1", owner) for owner in ("alice", "bob")}
    most = [add(statements, "select 1", "eve") for _ in range(MAX_OWNER_STATEMENTS)]
    crowd = range(MAX_STATEMENTS - len(statements))
    for number in crowd:
        add(statements, "select 1", f"one of many {number}")
    few["carol"] = add(statements, "select 1", "carol")
    assert all(has(statements, handle, owner) for owner, handle in few.items())
    assert [has(statements, handle, "eve") for handle in most[:2]] == [False, True]
    assert len(statements) == MAX_STATEMENTS


def test_bytes_are_limited_as_numbers_are() -> None:
    statements = PreparedStatements()
    kept = add(statements, "select 1", "bob")
    large = "x" * (MAX_OWNER_BYTES // 2)
    first, second = (add(statements, large, "eve") for _ in range(2))
    assert (has(statements, first, "eve"), has(statements, second, "eve")) == (False, True)
    statements.bind(second, "eve", ["y" * (MAX_OWNER_BYTES // 4)])
    for number in range(2 * MAX_STATEMENTS_BYTES // len(large)):
        add(statements, large, f"one of many {number}")
    assert has(statements, kept, "bob")
    for use in (
        lambda: add(statements, "x" * MAX_OWNER_BYTES, "bob"),
        lambda: statements.bind(kept, "bob", ["x" * MAX_OWNER_BYTES]),
    ):
        with refused(RequestError, where="prepared statement"):
            use()
    assert statements.get(kept, "bob").parameters == ()


def test_a_bound_statement_does_not_make_room_for_itself() -> None:
    statements = PreparedStatements()
    handle = add(statements, "select ?", "eve")
    other = add(statements, "x" * (MAX_OWNER_BYTES // 2), "eve")
    statements.bind(handle, "eve", ["y" * (MAX_OWNER_BYTES // 2)])
    assert (has(statements, handle, "eve"), has(statements, other, "eve")) == (True, False)
