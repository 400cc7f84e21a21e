"""Flight SQL's messages: every message survives the way out and back, and any bytes give one or a typed error."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError, Unsupported
from fastflight.protocol.flight_sql import (
    MESSAGES,
    CommandGetSqlInfo,
    CommandGetTables,
    CommandStatementQuery,
    Message,
    decode,
    encode,
)

VALUES = {
    "str": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "bool": st.booleans(),
    "str | None": st.none() | st.text(max_size=20),
    "bytes | None": st.none() | st.binary(max_size=20),
    "tuple[str, ...]": st.lists(st.text(max_size=5), max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
}
messages = st.sampled_from(list(MESSAGES.values())).flatmap(
    lambda kind: st.builds(kind, **{field.name: VALUES[str(field.type)] for field in fields(kind)})
)


@given(messages)
def test_a_message_survives_the_way_out_and_back(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages.map(encode), st.binary(max_size=4), st.integers(0, 120), st.integers(0, 4))
def test_any_bytes_are_a_message_or_a_typed_error(data: bytes, inserted: bytes, at: int, removed: int) -> None:
    try:
        decoded = decode(data[:at] + inserted + data[at + removed :])
    except RequestError as error:
        assert str(error)
    else:
        assert type(decoded) in MESSAGES.values()


def test_the_bytes_are_those_of_other_implementations() -> None:
    """Written by Arrow's own Go client."""
    asked = b"\nCtype.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery\x12\n\n\x08SELECT 1"
    assert decode(asked) == CommandStatementQuery("SELECT 1")
    assert encode(CommandStatementQuery("SELECT 1")) == asked
    # A list of numbers may be packed or not.
    prefix = b"\n?type.googleapis.com/arrow.flight.protocol.sql.CommandGetSqlInfo\x12"
    assert decode(prefix + b"\x06\n\x04\x00\x01\xf4\x03") == decode(prefix + b"\x07\x08\x00\x08\x01\x08\xf4\x03")
    assert decode(prefix + b"\x06\n\x04\x00\x01\xf4\x03") == CommandGetSqlInfo((0, 1, 500))


def test_an_empty_text_is_not_an_absent_one() -> None:
    assert decode(encode(CommandGetTables(catalog=""))) != decode(encode(CommandGetTables()))


def test_other_messages_of_flight_sql_are_not_supported() -> None:
    for name in ("CommandStatementUpdate", "CommandGetPrimaryKeys", "CommandStatementSubstraitPlan"):
        data = encode(CommandStatementQuery()).replace(b"C" + b"type", bytes([0x2E + len(name)]) + b"type")
        with pytest.raises(Unsupported, match=name):
            decode(data.replace(b"CommandStatementQuery", name.encode()))
