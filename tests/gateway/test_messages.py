"""Rows as messages: whatever their size, what comes is what went, and no message is larger than one may be."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES
from fastflight.gateway.ws.messages import ArrowMessages, JsonMessages

SCHEMA = pa.schema([("n", pa.int64()), ("data", pa.binary())])


def rows(count: int, size: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(count)), pa.array([b"\xff" * size] * count, pa.binary())], schema=SCHEMA)


@pytest.mark.parametrize(("count", "size"), [(0, 0), (3, 5), (5000, 1000)])
def test_as_arrow_the_messages_are_a_stream(count: int, size: int) -> None:
    batch = rows(count, size)
    encoder = ArrowMessages(SCHEMA)
    messages = [encoder.begin(), *encoder.encode(batch), encoder.finish()]
    assert max(len(message) for message in messages) <= MAX_MESSAGE_BYTES
    assert pa.ipc.open_stream(b"".join(messages)).read_all().combine_chunks() == pa.Table.from_batches([batch])


@pytest.mark.parametrize(("count", "size"), [(0, 0), (3, 5), (5000, 1000)])
def test_as_json_bytes_are_base64(count: int, size: int) -> None:
    encoder = JsonMessages(SCHEMA)
    assert json.loads(encoder.begin())["columns"] == [
        {"name": "n", "type": "int64"},
        {"name": "data", "type": "binary"},
    ]
    messages = list(encoder.encode(rows(count, size)))
    assert max(len(message) for message in messages) <= MAX_MESSAGE_BYTES
    came: list[dict[str, Any]] = [row for message in messages for row in json.loads(message)["rows"]]
    assert [row["n"] for row in came] == list(range(count))
    assert all(base64.b64decode(row["data"]) == b"\xff" * size for row in came)
    assert encoder.finish() is None


@pytest.mark.parametrize("kind", [ArrowMessages, JsonMessages])
def test_a_row_that_no_message_holds_is_refused(kind: type[ArrowMessages] | type[JsonMessages]) -> None:
    with pytest.raises(HttpRefusal, match="does not fit into a message") as raised:
        list(kind(SCHEMA).encode(rows(2, MAX_MESSAGE_BYTES)))
    assert raised.value.status == 413
