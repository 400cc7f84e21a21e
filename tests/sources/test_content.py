"""The bytes of a file from the batches of a stream: what is told, what is refused, the same in both worlds."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from fastflight.concurrency.blocking import Blocking, NonBlocking
from fastflight.device import PartialWrite, Resumption
from fastflight.errors import DataError, Stopped
from fastflight.service.source import PartialUpload, Progress
from fastflight.sources.content import TEXT_VALUES, FileContent
from fastflight.sources.modes import CHECK_BYTES, InThread
from fastflight.tables import Layout, open_writer

SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])
WHOLE = b"abcdef"
SHA256 = hashlib.sha256(WHOLE).hexdigest()
PART = PartialWrite(2, "crc32", "9e83486d")


def row(offset: int, data: bytes) -> pa.RecordBatch:
    return pa.record_batch([[offset], [data]], schema=SCHEMA)


def pieces_of(file: FileContent, batches: list[pa.RecordBatch]) -> list[bytes]:
    return list(Blocking(file.pieces(NonBlocking(batches))))


def content(told: list[Progress | PartialUpload], sha256: str | None = SHA256) -> FileContent:
    return FileContent(Layout("raw"), SCHEMA, told.append, sha256)


def test_a_part_is_gone_on_with() -> None:
    told: list[Progress | PartialUpload] = []
    file = content(told)
    file.announce_part(PART)
    file.start(row(2, b"cd"))
    assert file.resumption == Resumption(PART, SHA256)
    assert b"".join(pieces_of(file, [row(4, b"ef")])) == b"cdef"
    assert told == [PartialUpload(2, "crc32", "9e83486d"), Progress(1, 4), Progress(2, 6)]


def test_a_part_is_left_alone() -> None:
    told: list[Progress | PartialUpload] = []
    file = content(told)
    file.announce_part(PART)
    file.start(row(0, b"abcd"))
    assert file.resumption is None
    assert b"".join(pieces_of(file, [row(4, b"ef")])) == WHOLE
    assert told[1:] == [Progress(1, 4), Progress(2, 6)]


def test_there_may_be_no_part_and_no_rows() -> None:
    told: list[Progress | PartialUpload] = []
    file = content(told, None)
    file.announce_part(None)
    file.start(None)
    assert b"".join(pieces_of(file, [])) == b""
    assert told == [PartialUpload()]


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
def test_a_large_batch_becomes_text_bit_by_bit(format_: str) -> None:
    """As text it takes seconds, in which nothing else would run on a loop; nulls and flags far more room as well."""
    batch = pa.record_batch([pa.nulls(3 * TEXT_VALUES), pa.array([True] * (3 * TEXT_VALUES))], ["n", "b"])
    told: list[Progress | PartialUpload] = []

    file = FileContent(Layout(format_), batch.schema, told.append, None)
    file.start(batch)
    pieces = pieces_of(file, [batch, batch.slice(0, 0)])
    assert len(pieces) == 1 + 6 + 6 + 1 + 1
    writer = open_writer(Layout(format_), batch.schema)
    assert b"".join(pieces) == writer.begin() + 2 * writer.encode(batch)
    # A batch is acknowledged when all of it is stored.
    size = len(writer.encode(batch))
    assert told[:3] == [Progress(rows * 3 * TEXT_VALUES, len(pieces[0]) + rows * size) for rows in (1, 2, 2)]


def test_content_that_is_not_what_was_announced_does_not_end() -> None:
    file = content([])
    file.start(row(0, b"abcdeX"))
    with pytest.raises(DataError, match="the content does not have the announced sha256"):
        pieces_of(file, [])


@pytest.mark.parametrize(("first", "sha256", "says"), [(1, SHA256, "Go on at 2"), (2, None, "the sha256 of all of it")])
def test_rows_that_cannot_go_on_are_refused(first: int, sha256: str | None, says: str) -> None:
    file = content([], sha256)
    file.announce_part(PART)
    with pytest.raises(DataError) as raised:
        file.start(row(first, b"x"))
    assert says in str(raised.value)


def test_content_is_given_in_parts_between_which_a_thread_looks_whether_it_is_wanted() -> None:
    given = [b"", b"ab", bytes(2 * CHECK_BYTES + 1)]
    looks: list[None] = []
    parts = list(Blocking(InThread(lambda: looks.append(None)).while_wanted(NonBlocking(given))))
    assert [len(part) for part in parts] == [0, 2, CHECK_BYTES, CHECK_BYTES, 1]
    assert b"".join(parts) == b"".join(given)
    assert len(looks) == len(parts)

    def check() -> None:
        raise Stopped("the client has left")

    with pytest.raises(Stopped):
        next(Blocking(InThread(check).while_wanted(NonBlocking(given))))
