"""Rows of `recording` requests, from a store in a folder, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastflight.log import Store
from fastflight.service.requests import Recording
from fastflight.sources.recorded_rows import BEGAN, LOG_SCHEMA, log_batch
from fastflight.sources.recording import RecordingSource
from fastflight.transport.chunk_buffer import Chunk
from tests.sources.test_session_rows import told
from tests.support.source_items import aitems, items

CSV = {"format": "csv", "schema": {"a": "int64", "b": "int64"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, sync_ms=0) as store:
        yield store


def keep(store: Store, *lines: bytes, cuts: dict[int, str]) -> None:
    """A chunk each, a second apart."""
    chunks = [Chunk(seq, seq * 10**9, "rx", line) for seq, line in enumerate(lines)]
    store.open("demo", LOG_SCHEMA).append(log_batch(chunks, cuts)).result()


def read(store: Store, **keys: Any) -> list[Any]:
    """What sync and async give alike: rows and notes."""
    request = Recording.model_validate({"name": "demo", **keys})
    source = RecordingSource(store)
    given = items(source.read(request))

    async def apart() -> list[pa.RecordBatch]:
        return await aitems(await source.aread(request))

    assert told(asyncio.run(apart())) == told(given)
    return told(given)


@pytest.mark.parametrize("start", [{"from_time": datetime.fromtimestamp(1, UTC)}, {"from_seq": 1}], ids=["time", "seq"])
def test_a_line_behind_a_cut_is_not_known_to_be_whole(store: Store, start: dict[str, Any]) -> None:
    keep(store, b"1,2\n", b"5,2\n", b"3,4\n", cuts={0: BEGAN, 1: "the line was lost: it was pulled"})
    assert [row["a"] for row in read(store, **CSV, **start) if "a" in row] == [3]
