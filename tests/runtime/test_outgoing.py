"""What a source gives, as it is sent: no row and no note changes its place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.runtime import outgoing
from fastflight.runtime.outgoing import JOINED_BYTES, MAX_MESSAGE_BYTES, SMALL_BYTES, Message, Outgoing
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.requests import MAX_BATCH_ROWS
from fastflight.service.resolve import ResolvedRequest
from fastflight.service.source import Batch, Batches, Noted, Reading
from fastflight_benchmark.mock import Mock
from tests.support.function_source import FunctionSource

NUMBER = pa.int64()
SCHEMA = pa.schema([("n", NUMBER)])
LARGE = SMALL_BYTES // 8


def batch(*numbers: int, type_: pa.DataType = NUMBER) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, type_)})


def opened_stream() -> Stream:
    return StreamRegistry().open(ResolvedRequest.with_(Mock(), FunctionSource(Mock)), lambda: False, lambda: "test")


def sent(
    ready: list[Batches], max_rows: int = MAX_BATCH_ROWS, schema: pa.Schema = SCHEMA
) -> tuple[list[Message], dict[str, Any]]:
    """The messages of lists of batches of which each waits for its client as a whole, and the trailer."""
    stream = opened_stream()
    stream.resolved.max_batch_rows = max_rows
    answer = Outgoing(stream)
    messages = list(answer.sent(answer.opened(lambda: Reading(schema, iter(ready)))))
    assert (stream.rows, stream.bytes) == (answer.trailer()["rows"], answer.trailer()["bytes"])
    return messages, dict(answer.trailer())


def sizes(ready: list[Batches], max_rows: int = MAX_BATCH_ROWS) -> list[int]:
    return [message.num_rows for message, _ in sent(ready, max_rows)[0]]


def seen(batches: list[Batch]) -> list[Any]:
    """Numbers and notes, in their order."""
    found: list[Any] = []
    for each in batches:
        if isinstance(each, Noted):
            found.append(each.note["number"])
        found += (each.batch if isinstance(each, Noted) else each).column("n").to_pylist()
    return found


def of_kind(kind: int, number: int) -> Batch:
    if kind == 0:
        return Noted(batch(), {"number": -number})
    return batch(*range(number, number + (LARGE if kind == 1 else kind)))


@given(st.lists(st.lists(st.builds(of_kind, st.integers(0, 5), st.integers(1, 9)), max_size=6), max_size=4))
def test_every_row_and_every_note_stays_in_its_place(ready: list[Batches]) -> None:
    messages, trailer = sent(ready)
    assert seen([message if note is None else Noted(message, note) for message, note in messages]) == seen(
        [each for batches in ready for each in batches]
    )
    assert trailer["rows"] == sum(message.num_rows for message, _ in messages)
    assert trailer["bytes"] == 8 * trailer["rows"]


def test_what_waits_together_is_joined() -> None:
    assert sizes([[batch(1), batch(2, 3)], [batch(4)]]) == [3, 1]


def test_what_is_joined_has_a_bound() -> None:
    small = batch(*range(1000))
    assert max(sizes([[small] * 200])) <= JOINED_BYTES // 8
    assert sum(sizes([[small] * 200])) == 200_000


def test_no_batch_has_more_rows_than_were_asked_for() -> None:
    assert sizes([[batch(1, 2), batch(3), batch(4), batch(5, 6)]], max_rows=3) == [3, 3]


def test_a_large_batch_is_not_copied() -> None:
    large = batch(*range(LARGE))
    ((message, _),) = sent([[large]])[0]
    assert message.column(0).buffers()[1].address == large.column(0).buffers()[1].address


def test_columns_that_would_take_fewer_bytes_are_not_joined() -> None:
    text = batch("a", type_=pa.string())
    assert len(sent([[text, text]], schema=text.schema)[0]) == 2


def test_a_message_is_one_that_every_client_takes_and_its_note_comes_with_the_first() -> None:
    huge = batch(*range(MAX_MESSAGE_BYTES // 4))
    messages, _ = sent([[Noted(huge, {"number": 1})]])
    assert [note for _, note in messages] == [{"number": 1}, None, *[None] * (len(messages) - 2)]
    assert all(pa.ipc.get_record_batch_size(message) <= MAX_MESSAGE_BYTES for message, _ in messages)


def test_signs_of_life_go_on_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent([[], [batch()]])[0] == []
    monkeypatch.setattr(outgoing, "HEARTBEAT_SECONDS", 0.0)
    assert [message.num_rows for message, _ in sent([[], [batch()]])[0]] == [0, 0]


def test_rows_that_came_with_the_schema_are_first() -> None:
    answer = Outgoing(opened_stream())
    reading = Reading(SCHEMA, iter([[batch(2)]]), first=[batch(1)])
    messages = answer.sent(answer.opened(lambda: reading))
    assert [message.column("n").to_pylist() for message, _ in messages] == [[1], [2]]
