"""What a batch takes of memory while it waits."""

from __future__ import annotations

import pyarrow as pa

from fastflight.runtime.outgoing import Weighed
from fastflight.runtime.weight import weight
from fastflight.service.requests import DeviceSession
from fastflight.service.source import AsyncReading, Noted
from fastflight.sources.session_rows import SessionRows
from fastflight.transport.chunk_buffer import Chunk


def test_a_line_of_a_live_session_weighs_what_is_kept_for_it_and_not_its_values_alone() -> None:
    rows = SessionRows(DeviceSession(device="demo", flush_ms=0))
    (line,) = rows.feed([Chunk(0, 0, "rx", b"21.5\n")])
    assert isinstance(line, pa.RecordBatch)
    assert line.nbytes < 50
    weighed = Weighed()
    weighed(AsyncReading(rows.schema, iter(())))  # type: ignore[arg-type]  # nothing is read of it
    # 3.8 KB were measured. 8 MiB that wait for a reader are some thousands of them, not 200,000.
    assert 2_000 < weighed(Noted(line, {})) == weight(line, line.nbytes) < 4_000
    assert weighed(line) == line.nbytes  # the same once more
    assert weighed(line.slice(0)) == weight(line, line.nbytes)


def test_what_matters_of_a_large_batch_is_its_values() -> None:
    batch = pa.record_batch({"n": pa.nulls(100_000, pa.int64())})
    assert batch.nbytes <= weight(batch, batch.nbytes) < 1.01 * batch.nbytes
