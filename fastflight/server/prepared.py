"""Prepared statements of Flight SQL: queries that clients have named, with the parameters that they have bound.

A statement belongs to the identity that has prepared it, and ends when it is closed or has not been used for
`LIFETIME_SECONDS`. Where there are too many, the identity that has most loses the one that it has not used for longest:
nobody can take the room of others. Without authentication the handle, which nobody can guess, is what makes a statement
one's own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastflight.errors import RequestError, UnknownName

# An hour: connection pools keep statements for as long.
LIFETIME_SECONDS = 3600.0
# A client has one for each query that runs, and a pool some dozens.
MAX_STATEMENTS = 1024
MAX_OWNER_STATEMENTS = 256
# The queries, schemas and parameters of all of them, and of those of one owner.
MAX_STATEMENTS_BYTES = 16 * 1024 * 1024
MAX_OWNER_BYTES = 4 * 1024 * 1024
HANDLE_BYTES = 16


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
        """Keep a statement and return its handle. Raise `RequestError` if it is too large."""
        size = len(query.encode()) + schema.serialize().size
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._lock:
            self._expire()
            _check_size(size)
            self._make_room(owner, size)
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
                    hint=f"It was closed, not used for {LIFETIME_SECONDS:.0f} s, or replaced: prepare it again",
                )
            statement.used = self._clock()
            self._statements[handle] = self._statements.pop(handle)
            return statement

    def bind(self, handle: bytes, owner: str, parameters: Sequence[Any]) -> None:
        """Set the values of the parameters. Raise as `get` and `add` do."""
        statement = self.get(handle, owner)
        more = len(repr(parameters)) - len(repr(statement.parameters))
        with self._lock:
            _check_size(statement.size + more)
            self._make_room(owner, statement.size + more, statement)
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

    def _make_room(self, owner: str, size: int, kept: PreparedStatement | None = None) -> None:
        """Forget statements other than `kept` until `owner` has room for one of `size` bytes."""
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for each in self._statements.values():
            if each is not kept:
                counts[each.owner] += 1
                sizes[each.owner] += each.size
        while True:
            if counts[owner] >= MAX_OWNER_STATEMENTS or sizes[owner] + size > MAX_OWNER_BYTES:
                loser = owner
            elif counts.total() >= MAX_STATEMENTS:
                loser = max(counts, key=counts.__getitem__)
            elif sizes.total() + size > MAX_STATEMENTS_BYTES:
                loser = max(sizes, key=sizes.__getitem__)
            else:
                return
            mine = ((handle, each) for handle, each in self._statements.items() if each.owner == loser)
            handle, oldest = next((handle, each) for handle, each in mine if each is not kept)
            del self._statements[handle]
            counts[loser] -= 1
            sizes[loser] -= oldest.size


def _check_size(size: int) -> None:
    if size > MAX_OWNER_BYTES:
        raise RequestError(
            f"a prepared statement of {size} bytes is too large: {MAX_OWNER_BYTES} are allowed, with its parameters",
            where="prepared statement",
            hint="Send a shorter query, or smaller parameters",
        )
