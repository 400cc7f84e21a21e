"""Reads what the process of a query sends to the server, which trusts none of it.

That process runs what any client writes, and may be sandboxed for that reason alone: its bytes are a stranger's. Each
function takes the payload of a frame and returns what it says, or raises `SourceError`. End the process then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from fastflight.errors import DataError, SourceError
from fastflight.tables.ipc import RECORD_BATCH, SCHEMA, IpcMessage, MessageSplitter, check_size
from fastflight.tables.vetting import vet_batch, vet_schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Named:
    """The tables that a query names, whether it lists all tables, and whether it is an `explain`."""

    tables: list[tuple[str, str, str]]
    lists: bool
    explains: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query failed: what is wrong with it, or the limit that it has reached."""

    what: str = "the query cannot be run"
    where: str = "query"
    hint: str = ""
    limit: Literal["", "memory", "row_bytes"] = ""


FAILURE = TypeAdapter(Failure)
NAMED = TypeAdapter(Named)


def read_json(kind: TypeAdapter[T], payload: bytes) -> T:
    """Return a message of one of the kinds above."""
    try:
        return kind.validate_json(payload, strict=True)
    except ValidationError:
        raise unannounced("a message that cannot be read") from None


def read_schema(payload: bytes) -> pa.Schema:
    """Return a schema of columns that need nothing beside the batches."""
    with _checked("a schema"):
        schema = pa.ipc.read_schema(pa.py_buffer(_message(payload, SCHEMA).data))
        vet_schema(schema, "query")
        if any(pa.types.is_dictionary(field.type) for field in schema):
            raise pa.ArrowInvalid("a dictionary")
        return schema


def read_rows(payload: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of `schema`. All values are validated: a wrong offset reads foreign memory."""
    with _checked("rows that are not those it has announced"):
        message = _message(payload, RECORD_BATCH)
        check_size(message)
        batch = pa.ipc.read_record_batch(pa.py_buffer(message.data), schema)
        vet_batch(batch)
        return batch


def unannounced(what: str) -> SourceError:
    """Return the error for a process that sends something wrong."""
    return SourceError(
        f"the process of this query sends {what}",
        where="query",
        hint="Send the query again. If this comes again, report the query",
    )


def _message(payload: bytes, kind: int) -> IpcMessage:
    """Return the one message in a payload."""
    splitter = MessageSplitter()
    messages = list(splitter.feed(payload))
    if len(messages) != 1 or messages[0].kind != kind or splitter.left:
        raise pa.ArrowInvalid("not one message of this kind")
    return messages[0]


@contextmanager
def _checked(what: str) -> Iterator[None]:
    try:
        yield
    except (DataError, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise unannounced(what) from error
