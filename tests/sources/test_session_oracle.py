"""Rows of sessions and of recordings, of random traffic, are those that the oracle works out (`session_oracle`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fastflight.gap import Gap
from fastflight.log import NumberedRows, Store
from fastflight.service.requests import DeviceSession, Recording
from fastflight.service.source import Noted
from fastflight.sources.recorded_rows import RecordedChunks, RecordedLines
from fastflight.sources.recording import RecordingSource
from fastflight.sources.session_rows import DIRECTIONS, SessionRows
from fastflight.sources.typed_rows import TypedRows
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.session_oracle import (
    FORMATS,
    SCHEMA,
    Expected,
    as_stored,
    as_times,
    begins_line,
    check,
    expected,
    part,
    ranges,
    seen,
    traffic,
    with_gaps,
)
from tests.support.source_items import items as source_items

KEYS = st.fixed_dictionaries({"batch_rows": st.integers(1, 12)}, optional={"limit_rows": st.integers(0, 12)})


def requested(format: str, keys: dict[str, Any]) -> dict[str, Any]:
    return {"format": format, **({"schema": SCHEMA} if format in ("jsonl", "csv") else {}), **keys}


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_a_session_has_the_rows_of_its_traffic(format: str, data: st.DataObject) -> None:
    items = data.draw(traffic(format))
    keys = data.draw(KEYS)
    whole = data.draw(st.booleans())
    request = DeviceSession.model_validate(
        {"device": "demo", "flush_ms": data.draw(st.sampled_from([0, 60_000])), **requested(format, keys)}
    )
    rows = SessionRows(request, lambda: 0.0)
    rows.begin(whole)
    batches: list[Any] = []
    place = 0
    while place < len(items):
        stop = place + data.draw(st.integers(1, len(items) - place))
        batches += rows.feed(items[place:stop])
        place = stop
    batches += rows.finish()
    answer = expected(items, format, begins_line=whole)
    check_batches(batches, answer, keys)
    if "limit_rows" not in keys:
        check_summary(rows.summary(), items, answer)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_a_recording_has_the_rows_of_its_traffic(format: str, data: st.DataObject) -> None:
    items = with_gaps(data.draw(traffic(format, recorded=True)))
    keys = data.draw(KEYS)
    whole = data.draw(st.booleans())
    request = Recording.model_validate({"name": "demo", **requested(format, keys)})
    rows: RecordedChunks | RecordedLines = RecordedChunks(request) if format == "bytes" else RecordedLines(request)
    if isinstance(rows, RecordedLines):
        rows.begin(whole)
    batches: list[Any] = []
    for item in stored(items, data):
        if rows.full:
            break
        batches += rows.add(item)
    batches += rows.finish()
    answer = expected(items, format, begins_line=whole)
    check_batches(batches, answer, keys)
    if "limit_rows" not in keys:
        check_summary(rows.summary(), items, answer)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=10, phases=[phase for phase in Phase if phase is not Phase.explain])
@given(data=st.data())
def test_a_range_of_a_stored_recording(format: str, data: st.DataObject) -> None:
    items = with_gaps(data.draw(traffic(format, recorded=True).map(as_stored)))
    keys, bounds = data.draw(KEYS), data.draw(ranges(items))
    request = Recording.model_validate({"name": "demo", **requested(format, keys), **as_times(bounds)})
    with TemporaryDirectory() as folder, Store(Path(folder), sync_ms=0) as store:
        log = store.open("demo")
        gap = None
        for item in stored(items, data):
            if isinstance(item, NumberedRows):
                log.append(item.batch, first=item.first, gap=gap).result()
            gap = item if isinstance(item, Gap) else None
        batches = source_items(RecordingSource(store, TypedRows(store.log).parser).read(request))
    wanted = part(items, **bounds)
    first = next((item.seq for item in wanted if isinstance(item, Chunk)), 0)
    answer = expected(
        wanted,
        format,
        begins_line=begins_line(items, first),
    )
    check_batches(batches, answer, keys)


def stored(items: list[Chunk | Gap], data: st.DataObject) -> list[NumberedRows | Gap]:
    """Return traffic as a log returns it: rows of some chunks each, and what is missing."""
    found: list[NumberedRows | Gap] = []
    chunks: list[Chunk] = []
    for item in items:
        if chunks and (isinstance(item, Gap) or data.draw(st.booleans())):
            found.append(NumberedRows(chunks[0].seq, log_batch(chunks, cuts(chunks))))
            chunks = []
        if isinstance(item, Gap):
            found.append(item)
        else:
            chunks.append(item)
    return [*found, NumberedRows(chunks[0].seq, log_batch(chunks, cuts(chunks)))] if chunks else found


def cuts(chunks: list[Chunk]) -> dict[int, str]:
    return {chunk.seq: chunk.cut for chunk in chunks if chunk.cut}


def check_batches(batches: list[Any], answer: Expected, keys: dict[str, Any]) -> None:
    check(seen(batches), answer, keys.get("limit_rows"))
    sizes = [(batch.batch if isinstance(batch, Noted) else batch).num_rows for batch in batches]
    assert all(size <= keys["batch_rows"] for size in sizes)


def check_summary(summary: dict[str, Any], items: list[Chunk | Gap], answer: Expected) -> None:
    chunks = [item for item in items if isinstance(item, Chunk)]
    gaps = [item["gap"] for item in answer.items if "gap" in item]
    last = items[-1] if items else None
    assert (
        summary.items()
        >= {
            **{
                f"{way}_bytes": sum(len(chunk.data) for chunk in chunks if chunk.direction == way) for way in DIRECTIONS
            },
            "gaps": len(gaps),
            "lost": sum(last + 1 - first for first, last in gaps),
            "rejected": answer.rejected,
            "next_seq": None if last is None else 1 + (last.last if isinstance(last, Gap) else last.seq),
        }.items()
    )
