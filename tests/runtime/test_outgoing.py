"""What a source gives, as it is sent: no row and no note changes its place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.runtime import outgoing
from fastflight.runtime.outgoing import JOINED_BYTES, MAX_MESSAGE_BYTES, SMALL_BYTES, Packer, Run, joined
from fastflight.service.requests import MAX_BATCH_ROWS
from fastflight.service.resolve import AnswerSchema
from fastflight.service.source import Item, Lot, Noted

NUMBER = pa.int64()
SCHEMA = pa.schema([("n", NUMBER)])
LARGE = SMALL_BYTES // 8


def batch(*numbers: int, type_: pa.DataType = NUMBER) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, type_)})


def packed(lots: list[Lot], max_rows: int = MAX_BATCH_ROWS, schema: pa.Schema = SCHEMA) -> list[Run]:
    """The runs of lots of which each waits for its client as a whole."""
    packer = Packer(AnswerSchema(schema, b"", "sync"))
    return list(joined(packer.packed(lots), max_rows))


def sizes(lots: list[Lot], max_rows: int = MAX_BATCH_ROWS) -> list[int]:
    return [piece.num_rows for run in packed(lots, max_rows) for piece, _ in run.pieces()]


def seen(items: list[Item]) -> list[Any]:
    """Numbers and notes, in their order."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, Noted):
            found.append(item.note["number"])
        found += (item.batch if isinstance(item, Noted) else item).column("n").to_pylist()
    return found


def as_item(kind: int, number: int) -> Item:
    if kind == 0:
        return Noted(batch(), {"number": -number})
    return batch(*range(number, number + (LARGE if kind == 1 else kind)))


@given(st.lists(st.lists(st.builds(as_item, st.integers(0, 5), st.integers(1, 9)), max_size=6), max_size=4))
def test_every_row_and_every_note_stays_in_its_place(lots: list[Lot]) -> None:
    sent: list[Item] = [
        piece if note is None else Noted(piece, note) for run in packed(lots) for piece, note in run.pieces()
    ]
    assert seen(sent) == seen([item for lot in lots for item in lot])
    runs = packed(lots)
    assert sum(run.rows for run in runs) == sum(piece.num_rows for run in runs for piece in run.batches)
    assert sum(run.bytes for run in runs) == 8 * sum(run.rows for run in runs)


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
    (run,) = packed([[large]])
    assert run.batches[0].column(0).buffers()[1].address == large.column(0).buffers()[1].address


def test_columns_that_would_take_fewer_bytes_are_not_joined() -> None:
    text = batch("a", type_=pa.string())
    assert len(packed([[text, text]], schema=text.schema)) == 2


def test_a_message_is_one_that_every_client_takes_and_its_note_comes_with_the_first() -> None:
    huge = batch(*range(MAX_MESSAGE_BYTES // 4))
    (run,) = packed([[Noted(huge, {"number": 1})]])
    assert [note for _, note in run.pieces()] == [{"number": 1}, None, *[None] * (len(run.batches) - 2)]
    assert all(pa.ipc.get_record_batch_size(piece) <= MAX_MESSAGE_BYTES for piece in run.batches)


def test_signs_of_life_go_on_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed([[], [batch()]]) == []
    monkeypatch.setattr(outgoing, "HEARTBEAT_SECONDS", 0.0)
    assert [run.rows for run in packed([[], [batch()]])] == [0, 0]
