"""Describes Flight's methods in protobuf, for load tools that know neither Arrow nor Flight.

A protobuf message is a sequence of fields. A field is a key (`number << 3 | kind`) and a value, both as variable-length
integers; strings, bytes and nested messages begin with their length (kind 2). Numbers and names are those of the Flight
protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVICE = "arrow.flight.protocol.FlightService"
PACKAGE, _, SERVICE_NAME = SERVICE.rpartition(".")

VARINT, LENGTH = 0, 2

# google.protobuf.FieldDescriptorProto.Type and Label.
ENUM_AS_INT32, STRING, BYTES = 5, 9, 12
OPTIONAL = 1
# The messages that a load tool has to write or read. It ignores the others.
MESSAGES: dict[str, Sequence[tuple[str, int, int]]] = {
    "Ticket": [("ticket", 1, BYTES)],
    "FlightDescriptor": [("type", 1, ENUM_AS_INT32), ("cmd", 2, BYTES)],
    "Action": [("type", 1, STRING), ("body", 2, BYTES)],
    "Result": [("body", 1, BYTES)],
    "FlightInfo": [("schema", 1, BYTES)],
    "FlightData": [("data_header", 2, BYTES), ("data_body", 1000, BYTES)],
}
# Name, request, answer, and whether the answer is a stream.
METHODS = (
    ("DoGet", "Ticket", "FlightData", True),
    ("GetFlightInfo", "FlightDescriptor", "FlightInfo", False),
    ("DoAction", "Action", "Result", True),
)


def varint(value: int) -> bytes:
    """Encode a number with seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field(number: int, value: int | bytes | str) -> bytes:
    """Encode one field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def description() -> bytes:
    """Return a FileDescriptorSet of the three methods, for tools that need one."""
    messages = b"".join(field(4, _message(name, fields)) for name, fields in MESSAGES.items())
    service = field(1, SERVICE_NAME) + b"".join(field(2, _method(*method)) for method in METHODS)
    file = field(1, "flight.proto") + field(2, PACKAGE) + messages + field(6, service) + field(12, "proto3")
    return field(1, file)


def _message(name: str, fields: Sequence[tuple[str, int, int]]) -> bytes:
    return field(1, name) + b"".join(
        field(2, field(1, title) + field(3, number) + field(4, OPTIONAL) + field(5, kind))
        for title, number, kind in fields
    )


def _method(name: str, request: str, answer: str, streams: bool) -> bytes:
    types = field(2, f".{PACKAGE}.{request}") + field(3, f".{PACKAGE}.{answer}")
    return field(1, name) + types + (field(6, 1) if streams else b"")
