from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fastflight.tables import Batcher


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], ["v"])


def rows(batches: list[pa.RecordBatch]) -> list[list[int]]:
    return [item.column("v").to_pylist() for item in batches]


def test_small_batches_are_joined_and_large_ones_split() -> None:
    batcher = Batcher(3, 1.0)
    assert rows(batcher.add([batch(1), batch(2)], 0.0)) == []
    assert rows(batcher.add([batch(3, 4, 5, 6, 7)], 0.0)) == [[1, 2, 3], [4, 5, 6]]
    assert rows(batcher.flush()) == [[7]]
    assert batcher.flush() == []


def test_rows_leave_when_they_have_waited() -> None:
    batcher = Batcher(10, 0.5)
    assert batcher.add([batch(1)], 100.0) == []
    assert batcher.due(100.4) == []
    assert rows(batcher.add([batch(2)], 100.5)) == [[1, 2]]
    assert batcher.due(200.0) == []


def test_a_batch_that_fits_is_not_copied() -> None:
    whole = batch(1, 2, 3)
    passed = Batcher(3, 1.0).add([whole], 0.0)
    assert passed[0].column(0).buffers()[1].address == whole.column(0).buffers()[1].address


def test_what_is_joined_is_no_larger_than_asked() -> None:
    text = pa.record_batch([pa.array(["x" * 1000] * 6)], ["t"])
    out = Batcher(1000, 1.0, joined_bytes=10_000).add([text, text], 0.0)
    assert [item.num_rows for item in out] == [6]


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=8), st.integers(1, 12), st.integers(8, 200))
def test_rows_are_neither_lost_nor_reordered(lists: list[list[int]], batch_rows: int, joined_bytes: int) -> None:
    batcher = Batcher(batch_rows, 2.0, joined_bytes)
    out = []
    for now, values in enumerate(lists):
        out += batcher.add([batch(*values)], float(now))
    out += batcher.flush()
    assert [value for part in rows(out) for value in part] == [value for values in lists for value in values]
    assert all(0 < part.num_rows <= batch_rows for part in out)
