"""Prepared statements of Flight SQL: queries that clients have named, with the parameters that they have bound.

A statement belongs to the identity that has prepared it, and ends when it is closed or has not been used for
`LIFETIME_SECONDS`. Without authentication the handle, which nobody can guess, is what makes a statement one's own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastflight.errors import ResourceExhausted, UnknownName

# An hour: connection pools keep statements for as long.
LIFETIME_SECONDS = 3600.0
# A client has one for each query that runs, and a pool some dozens.
MAX_STATEMENTS = 1024
# The queries, schemas and parameters of all of them.
MAX_STATEMENTS_BYTES = 16 * 1024 * 1024
HANDLE_BYTES = 16
RETRY_SECONDS = 60.0


@dataclass(slots=True)
class PreparedStatement:
    """A query, the schemas of its answer and of its parameters, their values, and whose it is."""

    query: str
    schema: pa.Schema
    parameter_schema: pa.Schema
    owner: str
    size: int
    used: float
    parameters: tuple[Any, ...] = ()


class PreparedStatements:
    """The prepared statements of one server. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The least recently used comes first.
        self._statements: dict[bytes, PreparedStatement] = {}

    def __len__(self) -> int:
        return len(self._statements)

    def add(self, query: str, schema: pa.Schema, parameter_schema: pa.Schema, owner: str) -> bytes:
        """Keep a statement and return its handle. Raise `ResourceExhausted` if there are too many."""
        size = len(query.encode()) + schema.serialize().size
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._lock:
            self._expire()
            if len(self._statements) >= MAX_STATEMENTS:
                raise _too_many("prepared statements", MAX_STATEMENTS)
            self._check_size(size)
            self._statements[handle] = PreparedStatement(query, schema, parameter_schema, owner, size, self._clock())
        return handle

    def get(self, handle: bytes, owner: str) -> PreparedStatement:
        """Return the statement, and begin its lifetime anew. Raise `UnknownName` if `owner` has none such."""
        with self._lock:
            self._expire()
            statement = self._statements.get(handle)
            if statement is None or statement.owner != owner:
                raise UnknownName(
                    "no such prepared statement",
                    where="prepared_statement_handle",
                    hint=f"It was closed, or not used for {LIFETIME_SECONDS:.0f} s: prepare it again",
                )
            statement.used = self._clock()
            self._statements[handle] = self._statements.pop(handle)
            return statement

    def bind(self, handle: bytes, owner: str, parameters: Sequence[Any]) -> None:
        """Set the values of the parameters. Raise as `get` and `add` do."""
        statement = self.get(handle, owner)
        more = len(repr(parameters)) - len(repr(statement.parameters))
        with self._lock:
            self._check_size(more)
            statement.parameters = tuple(parameters)
            statement.size += more

    def close(self, handle: bytes, owner: str) -> None:
        """Forget the statement. Do nothing if `owner` has none such."""
        with self._lock:
            statement = self._statements.get(handle)
            if statement is not None and statement.owner == owner:
                del self._statements[handle]

    def _expire(self) -> None:
        limit = self._clock() - LIFETIME_SECONDS
        while self._statements and next(iter(self._statements.values())).used < limit:
            del self._statements[next(iter(self._statements))]

    def _check_size(self, more: int) -> None:
        if sum(each.size for each in self._statements.values()) + more > MAX_STATEMENTS_BYTES:
            raise _too_many("bytes of prepared statements", MAX_STATEMENTS_BYTES)


def _too_many(what: str, limit: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"{limit} {what} are the most that this server keeps",
        scope="server",
        limit=limit,
        retry_after_seconds=RETRY_SECONDS,
        hint="Close those that are not used",
    )
