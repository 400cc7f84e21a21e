"""The files of a tree as rows, and back: whatever the pieces."""

from __future__ import annotations

import hashlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency.blocking import Blocking, NonBlocking
from fastflight.service.source import Noted, PartialUpload, Progress
from fastflight.sources.tree_rows import FLUSH_SECONDS, SCHEMA, TreeContent, TreeRows

names = st.text(alphabet="abü ", min_size=1, max_size=4)
trees = st.dictionaries(names, st.lists(st.binary(min_size=1, max_size=20), max_size=4), max_size=6)


def read(tree: dict[str, list[bytes]]) -> list[pa.RecordBatch | Noted]:
    rows = TreeRows(clock=lambda: 0.0)
    batches: list[pa.RecordBatch | Noted] = []
    for path, pieces in tree.items():
        for piece in pieces:
            batches += rows.feed(path, piece)
        rows.end(path)
        if len(path) % 2:  # a silence of the board
            batches += rows.feed(path, b"")
    return batches + rows.flush()


def rows_of(tree: dict[str, list[bytes]]) -> list[pa.RecordBatch]:
    batches = [item.batch if isinstance(item, Noted) else item for item in read(tree)]
    return [batch for batch in batches if batch.num_rows]


@given(tree=trees)
def test_what_was_read_can_be_written(tree: dict[str, list[bytes]]) -> None:
    batches = rows_of(tree)
    told: list[Progress | PartialUpload] = []
    content = TreeContent(SCHEMA, told.append)
    files = {path: b"".join(Blocking(pieces)) for path, pieces in Blocking(content.files(NonBlocking(batches)))}
    assert files == {path: b"".join(pieces) for path, pieces in tree.items()}
    assert len(told) == len(batches)
    rows, size = sum(batch.num_rows for batch in batches), sum(map(len, files.values()))
    assert told[-1:] == ([Progress(rows, size)] if batches else [])


def test_a_batch_is_acknowledged_when_the_next_piece_is_asked_for() -> None:
    told: list[Progress | PartialUpload] = []
    batches = [pa.record_batch([["a"], [offset], [b"x"]], schema=SCHEMA) for offset in range(2)]
    _, content = next(Blocking(TreeContent(SCHEMA, told.append).files(NonBlocking(batches))))
    pieces = Blocking(content)
    assert (next(pieces), told) == (b"x", [])
    assert (next(pieces), told) == (b"x", [Progress(1, 1)])
    assert (next(pieces, None), told) == (None, [Progress(1, 1), Progress(2, 2)])


def test_rows_wait_no_longer_than_a_while() -> None:
    now = [0.0]
    rows = TreeRows(clock=lambda: now[0])
    assert rows.feed("a", b"1") == []
    now[0] = FLUSH_SECONDS / 2
    assert rows.feed("a", b"2") == []
    now[0] = FLUSH_SECONDS
    (batch,) = rows.feed("a", b"3")
    assert batch.column("offset").to_pylist() == [0, 1, 2]


@given(tree=trees)
def test_the_digest_of_a_file_comes_with_the_file_after_it_at_the_latest(tree: dict[str, list[bytes]]) -> None:
    digests: list[str] = []
    begun: list[str] = []
    for item in read(tree):
        batch = item.batch if isinstance(item, Noted) else item
        digests += item.note["digests"] if isinstance(item, Noted) else []
        for row in batch.to_pylist():
            if row["path"] not in begun:
                assert len(digests) >= len(begun)
                begun.append(row["path"])
    assert digests == [hashlib.sha256(b"".join(pieces)).hexdigest() for pieces in tree.values()]
