"""Flight's messages without Arrow: what pyarrow writes is read, anything else raises a typed error."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.client.light.answer import (
    APP_METADATA,
    DATA_BODY,
    DATA_HEADER,
    LightRows,
    encode_field,
    fields_of,
)
from fastflight.errors import FastFlightError, ProtocolError

HERE = "grpc://127.0.0.1:1"
SCHEMA = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("us", tz="UTC"))])
ROWS = [
    {"path": "/a.csv", "size": 5, "modified": datetime(2026, 3, 1, 12, 30, tzinfo=UTC)},
    {"path": "/b", "size": 0, "modified": None},
]


def flight_data(schema: pa.Schema, batches: list[pa.RecordBatch]) -> list[bytes]:
    """Return the messages that a Flight server sends for these batches, without the last one."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(stream.getvalue())
    return [
        encode_field(DATA_HEADER, message.metadata.to_pybytes()) + encode_field(DATA_BODY, message.body.to_pybytes())
        for message in reader
    ]


def summary(**content: object) -> bytes:
    return encode_field(APP_METADATA, json.dumps(content).encode())


def rows_of(messages: list[bytes]) -> list[dict[str, Any]]:
    """Return the rows of an answer with these messages."""
    return [row for rows, _ in LightRows((each for each in messages), HERE) for row in rows]


BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def test_rows_are_what_the_server_sent() -> None:
    messages = [*flight_data(SCHEMA, [BATCH, BATCH.slice(0, 0), BATCH]), summary(rows=4)]
    assert rows_of(messages) == ROWS + ROWS


@pytest.mark.parametrize("last", [[], [summary(rows=3)]])
def test_missing_rows_are_an_error_and_no_short_table(last: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match="rows are missing"):
        rows_of([*flight_data(SCHEMA, [BATCH]), *last])


@given(st.dictionaries(st.integers(1, 2000), st.binary(max_size=300)))
def test_a_message_is_read_as_it_was_written(fields: dict[int, bytes]) -> None:
    assert fields_of(b"".join(encode_field(*each) for each in fields.items())) == fields


@given(st.binary(max_size=200), st.integers(0, 400), st.binary(max_size=8))
def test_any_bytes_are_rows_or_a_typed_error(garbage: bytes, at: int, put: bytes) -> None:
    messages = flight_data(SCHEMA, [BATCH])
    damaged = bytearray(messages[1])
    damaged[at % len(damaged) :][: len(put)] = put
    for answer in ([garbage], [messages[0], garbage, summary(rows=0)], [messages[0], bytes(damaged), summary(rows=2)]):
        try:
            rows_of(answer)
        except FastFlightError:
            pass
