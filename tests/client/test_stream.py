"""The rows of one answer, as its messages come."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from fastflight.client.stream import MAX_KEPT_GAPS, Gap, RowStream

EMPTY = pa.RecordBatch.from_pylist([], pa.schema([("seq", pa.uint64())]))


def chunk(**said: Any) -> SimpleNamespace:
    return SimpleNamespace(data=EMPTY, app_metadata=pa.py_buffer(json.dumps(said).encode()))


def test_all_that_was_missed_is_counted_though_only_the_newest_gaps_are_kept() -> None:
    gaps = [chunk(gap=Gap(10 * place, 10 * place + 2).details()) for place in range(MAX_KEPT_GAPS + 5)]
    chunks = iter([*gaps, chunk(rows=0)])
    stream = RowStream(SimpleNamespace(schema=EMPTY.schema, read_chunk=lambda: next(chunks)), "here")
    assert stream.to_arrow().num_rows == 0
    assert len(stream.gaps) == MAX_KEPT_GAPS
    assert stream.gaps[0] == Gap(50, 52)
    assert stream.missed == (MAX_KEPT_GAPS + 5, 3 * (MAX_KEPT_GAPS + 5))
