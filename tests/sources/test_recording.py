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
from fastflight.sources.recording import RecordingSource
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.sources.typed_rows import TypedRows
from fastflight.transport.chunk_buffer import Chunk, Direction
from fastflight.transport.tap import AFTER_REQUEST, WITHIN_REQUEST
from tests.log.rows import log_batch
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
    store.open("demo").append(log_batch(chunks, cuts)).result()


def read(store: Store, **keys: Any) -> list[Any]:
    """What sync and async give alike: rows and notes."""
    request = Recording.model_validate({"name": "demo", **keys})
    source = RecordingSource(store, TypedRows(store.log).parser)
    given = items(source.read(request))

    async def apart() -> list[pa.RecordBatch]:
        return await aitems(await source.aread(request))

    assert told(asyncio.run(apart())) == told(given)
    return told(given)


@pytest.mark.parametrize("start", [{"from_time": datetime.fromtimestamp(1, UTC)}, {"from_seq": 1}], ids=["time", "seq"])
def test_a_line_behind_a_cut_is_not_known_to_be_whole(store: Store, start: dict[str, Any]) -> None:
    keep(store, b"1,2\n", b"5,2\n", b"3,4\n", cuts={0: BEGAN, 1: "the line was lost: it was pulled"})
    assert [row["a"] for row in read(store, **CSV, **start) if "a" in row] == [3]


@pytest.mark.parametrize(
    ("rows", "start", "read_from"),
    [
        # The recording begins here.
        ([("rx", b"1,2\n", BEGAN)], {}, None),
        ([("rx", b"1,2\n", BEGAN_AT_LINE)], {}, 0),
        # Rows of an earlier server, which recorded nothing for a while.
        ([("rx", b"0,2", BEGAN), ("rx", b"1,2\n", BEGAN_AT_LINE)], {}, 1),
        ([("rx", b"0,2", BEGAN), ("rx", b"1,2\n", BEGAN)], {}, None),
        # The range begins here.
        ([("rx", b"0,2\n", BEGAN), ("rx", b"1,2\n", "")], {"from_seq": 1}, 1),
        ([("rx", b"0,2", BEGAN), ("rx", b"1,2\n", "")], {"from_seq": 1}, None),
        ([("rx", b"0,2", BEGAN), ("rx", b"1,2\n", AFTER_REQUEST)], {"from_seq": 1}, 1),
        ([("rx", b"0,2", BEGAN), ("rx", b"1,2\n", WITHIN_REQUEST)], {"from_seq": 1}, None),
        # What was sent to the device is no line of it.
        ([("rx", b"0,2\n", BEGAN), ("tx", b"x", ""), ("tx", b"y", ""), ("rx", b"1,2\n", "")], {"from_seq": 3}, 3),
        ([("rx", b"0,2", BEGAN), ("tx", b"x\n", ""), ("rx", b"1,2\n", "")], {"from_seq": 2}, None),
        ([("rx", b"0,2", BEGAN), ("tx", b"x", AFTER_REQUEST), ("rx", b"1,2\n", "")], {"from_seq": 2}, 2),
        ([("tx", b"x", BEGAN_AT_LINE), ("rx", b"1,2\n", "")], {"from_seq": 1}, 1),
        ([("tx", b"x", BEGAN), ("rx", b"1,2\n", "")], {"from_seq": 1}, None),
    ],
)
def test_a_line_whose_beginning_is_known_is_a_row(
    store: Store, rows: list[tuple[Direction, bytes, str]], start: dict[str, Any], read_from: int | None
) -> None:
    chunks = [Chunk(seq, seq * 10**9, direction, data) for seq, (direction, data, _) in enumerate(rows)]
    cuts = {seq: cut for seq, (_, _, cut) in enumerate(rows) if cut}
    store.open("demo").append(log_batch(chunks, cuts)).result()
    found = [row["seq"] for row in read(store, **CSV, **start) if row.get("a") == 1]
    assert found == ([] if read_from is None else [read_from])


def test_the_first_line_of_a_recording_that_begins_later_is_a_row(store: Store) -> None:
    chunk = Chunk(5, 10**9, "rx", b"1,2\n")
    store.open("demo").append(log_batch([chunk], {5: BEGAN_AT_LINE}), first=5, paused_until=5).result()
    assert [row["seq"] for row in read(store, **CSV)] == [5]
