"""The messages of Flight SQL that a server for reading needs, as bytes: `decode` and `encode`.

On the wire each message is wrapped in a protobuf `Any`, which names its type. Here a message is a dataclass. The number
of a field is its place in the class, as in Arrow's FlightSql.proto. This module needs the extra `sql`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias

from fastflight.errors import RequestError, Unsupported

PACKAGE = "arrow.flight.protocol.sql"
# How much of the name of an unknown message an error repeats. The longest name of Flight SQL is shorter.
MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class CommandStatementQuery:
    query: str = ""
    transaction_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class CommandPreparedStatementQuery:
    prepared_statement_handle: bytes = b""


@dataclass(frozen=True, slots=True)
class CommandGetSqlInfo:
    info: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandGetCatalogs:
    pass


@dataclass(frozen=True, slots=True)
class CommandGetDbSchemas:
    catalog: str | None = None
    db_schema_filter_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class CommandGetTables:
    catalog: str | None = None
    db_schema_filter_pattern: str | None = None
    table_name_filter_pattern: str | None = None
    table_types: tuple[str, ...] = ()
    include_schema: bool = False


@dataclass(frozen=True, slots=True)
class CommandGetTableTypes:
    pass


@dataclass(frozen=True, slots=True)
class ActionCreatePreparedStatementRequest:
    query: str = ""
    transaction_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class ActionCreatePreparedStatementResult:
    """The schemas are Arrow IPC messages."""

    prepared_statement_handle: bytes = b""
    dataset_schema: bytes = b""
    parameter_schema: bytes = b""


@dataclass(frozen=True, slots=True)
class ActionClosePreparedStatementRequest:
    prepared_statement_handle: bytes = b""


Message: TypeAlias = (
    CommandStatementQuery
    | CommandPreparedStatementQuery
    | CommandGetSqlInfo
    | CommandGetCatalogs
    | CommandGetDbSchemas
    | CommandGetTables
    | CommandGetTableTypes
    | ActionCreatePreparedStatementRequest
    | ActionCreatePreparedStatementResult
    | ActionClosePreparedStatementRequest
)
MESSAGES: dict[str, type[Message]] = {kind.__name__: kind for kind in Message.__args__}

# The annotation of a field: its type and its label in protobuf (descriptor.proto), and whether it may be absent.
_OPTIONAL, _REPEATED = 1, 3
_KINDS: dict[str, tuple[int, int, bool]] = {
    "str": (9, _OPTIONAL, False),
    "bytes": (12, _OPTIONAL, False),
    "bool": (8, _OPTIONAL, False),
    "str | None": (9, _OPTIONAL, True),
    "bytes | None": (12, _OPTIONAL, True),
    "tuple[str, ...]": (9, _REPEATED, False),
    "tuple[int, ...]": (13, _REPEATED, False),
}


def decode(data: bytes) -> Message:
    """Return the message in `data`. Raise `Unsupported` for another message of Flight SQL, else `RequestError`."""
    wire = _wire()
    wrapped = wire.wrapper()
    try:
        wrapped.ParseFromString(data)
    except wire.error:
        raise RequestError("not a message of Flight SQL", hint="Send it wrapped in a protobuf Any") from None
    package, _, name = wrapped.type_url.rpartition("/")[2].rpartition(".")
    shown = name[:MAX_NAME_CHARACTERS]
    if package != PACKAGE:
        raise RequestError("not a message of Flight SQL", where=shown)
    kind = MESSAGES.get(name)
    if kind is None:
        raise Unsupported("this part of Flight SQL is not supported", where=shown, hint="This server only reads")
    parsed = wire.classes[name]()
    try:
        parsed.ParseFromString(wrapped.value)
    except wire.error:
        raise RequestError("the content does not fit the message", where=shown) from None
    return kind(**{field.name: _value(parsed, field.name, field.type) for field in fields(kind)})


def encode(content: Message) -> bytes:
    """Return `content` wrapped in an `Any`."""
    name = type(content).__name__
    values = {field.name: getattr(content, field.name) for field in fields(content)}
    wire = _wire()
    inner = wire.classes[name](**{key: value for key, value in values.items() if value is not None})
    wrapped = wire.wrapper(type_url=f"type.googleapis.com/{PACKAGE}.{name}", value=inner.SerializeToString())
    return bytes(wrapped.SerializeToString())


def _value(parsed: Any, name: str, annotation: Any) -> Any:
    _, label, may_be_absent = _KINDS[annotation]
    if may_be_absent and not parsed.HasField(name):
        return None
    value = getattr(parsed, name)
    return tuple(value) if label == _REPEATED else value


@dataclass(frozen=True, slots=True)
class _Wire:
    """What protobuf has for the messages: the class of `Any`, those of the messages, and its error."""

    wrapper: Any
    classes: dict[str, type[Any]]
    error: type[Exception]


@cache
def _wire() -> _Wire:
    """Build protobuf's classes, in a pool of their own: another library may have registered the same names.

    This takes 45 ms, so a server does it for the first message and not when it starts.
    """
    from google.protobuf import (  # type: ignore[import-untyped]
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        message,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="flight_sql", package=PACKAGE, syntax="proto3")
    for name, kind in MESSAGES.items():
        described = file.message_type.add(name=name)
        for number, field in enumerate(fields(kind), 1):
            type_, label, may_be_absent = _KINDS[str(field.type)]
            added = described.field.add(name=field.name, number=number, type=type_, label=label)
            if may_be_absent:  # protobuf has these as a choice with one member
                added.proto3_optional = True
                added.oneof_index = len(described.oneof_decl)
                described.oneof_decl.add(name=f"_{field.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call,unused-ignore]
    found = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES}
    classes = {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}
    return _Wire(any_pb2.Any, classes, message.DecodeError)
