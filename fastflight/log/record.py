"""The binary format of a segment: a header, then records, each at a multiple of 8 bytes.

    segment   "FFLOG 1\\n"  salt u64  ordinal u64  created i64 (us UTC)  crc u32, zeros up to 64 bytes
    record    "FFr1"  header crc u32  kind u32  body crc u32  log u64  first u64  rows u64  length u64
              first time i64  last time i64 (us UTC), then `length` bytes of body, zeros up to a multiple of 8

All integers are little endian. The crc32 of a record's header begins with the segment's salt and the record's offset,
and covers the body's crc. So bytes of another file, from another place, or of a recording inside a recording are not
mistaken for a record. The body has a separate crc for two reasons: it is computed only once, by the thread that
appends; and if only the body is damaged, the header is still valid and its rows can be counted as lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

ALIGNMENT = 8
# A batch is in memory as a whole to be written and to be verified. Longer ones are refused: split them.
MAX_BODY_BYTES = 64 * 1024 * 1024
# If bytes were inserted into a file or cut out of it, the records behind them are searched at most this far from where
# they were written.
MAX_SHIFT = 1024 * 1024
# The most records for which to search the distance in vain. Each distance that is tried costs a microsecond or less,
# so this is a few seconds in all.
MAX_STRAYS = 64
# Data that was not written because of a power cut reads as zeros. A whole record rarely ends with this many zeros.
UNWRITTEN_BYTES = 64

SEGMENT_HEADER = struct.Struct("<8sQQqI28x")
RECORD_HEADER = struct.Struct("<4sIIIQQQQqq")
_SEAL = struct.Struct("<QQ")
_SEGMENT_MAGIC = b"FFLOG 1\n"
RECORD_MAGIC = b"FFr1"
_ZEROS = bytes(ALIGNMENT)


class RecordKind(IntEnum):
    """The kind of a record. `first` and `rows` in its header are the sequence numbers that it is about."""

    # An encapsulated Arrow message: `rows` rows from `first`.
    BATCH = 1
    # A log's name, schema, first number that is not trimmed, and next number. With it, segments need no manifest.
    STATE = 2
    # Numbers that an append left out. Its times tell whether rows were lost there (`index.LOST`, `PAUSE`).
    SKIP = 3


class Header(NamedTuple):
    """A record's header, whose checksum was verified."""

    kind: int
    body_crc: int
    log_number: int
    first: int
    rows: int
    length: int
    first_time: int
    last_time: int


class SegmentHeader(NamedTuple):
    salt: int
    ordinal: int
    created: int


class FoundRecord(NamedTuple):
    """A record in a buffer: its offset in the segment, its size with padding, and its header.

    `intact` tells whether the checksum of its body is right.
    """

    offset: int
    size: int
    header: Header
    intact: bool


def segment_header(salt: int, ordinal: int, created: int) -> bytes:
    start = SEGMENT_HEADER.pack(_SEGMENT_MAGIC, salt, ordinal, created, 0)
    return SEGMENT_HEADER.pack(_SEGMENT_MAGIC, salt, ordinal, created, crc32(start))


def parse_segment_header(data: bytes) -> SegmentHeader | None:
    """Return the header at the start of a segment; None if it is damaged or missing."""
    if len(data) < SEGMENT_HEADER.size:
        return None
    magic, salt, ordinal, created, crc = SEGMENT_HEADER.unpack_from(data)
    if magic != _SEGMENT_MAGIC or crc32(SEGMENT_HEADER.pack(magic, salt, ordinal, created, 0)) != crc:
        return None
    return SegmentHeader(salt, ordinal, created)


def record_size(length: int) -> int:
    """Return the size of a record whose body has `length` bytes."""
    return RECORD_HEADER.size + length + -length % ALIGNMENT


def encode_record(header: Header, body: bytes | memoryview, salt: int, offset: int) -> list[bytes | memoryview]:
    """Return the bytes of the record, to be written at `offset`, in pieces."""
    packed = RECORD_HEADER.pack(RECORD_MAGIC, 0, *header)
    crc = crc32(memoryview(packed)[8:], crc32(_SEAL.pack(salt, offset)))
    pieces: list[bytes | memoryview] = [packed[:4] + crc.to_bytes(4, "little") + packed[8:]]
    if header.length:
        pieces.append(body)
        if padding := -header.length % ALIGNMENT:
            pieces.append(_ZEROS[:padding])
    return pieces


def parse_header(data: memoryview, at: int, salt: int, offset: int) -> Header | None:
    """Return the header of the record at `data[at:]`, which was written at `offset`; None if there is no intact one."""
    if len(data) - at < RECORD_HEADER.size:
        return None
    magic, crc, *fields = RECORD_HEADER.unpack_from(data, at)
    if magic != RECORD_MAGIC:
        return None
    if crc32(data[at + 8 : at + RECORD_HEADER.size], crc32(_SEAL.pack(salt, offset))) != crc:
        return None
    header = Header(*fields)
    return header if header.length <= MAX_BODY_BYTES else None


def find_record(data: memoryview, at: int, salt: int, offset: int) -> FoundRecord | None:
    """Return the record that starts at `data[at:]`; None if its header is damaged or `data` ends within it."""
    header = parse_header(data, at, salt, offset)
    if header is None:
        return None
    body = at + RECORD_HEADER.size
    size = record_size(header.length)
    if at + size > len(data):
        return None
    return FoundRecord(offset, size, header, crc32(data[body : body + header.length]) == header.body_crc)


def scan_records(data: bytes, salt: int, origin: int) -> Iterator[FoundRecord]:
    """Yield every record in `data`, which begins at `origin` in its segment. Any record may be not `intact`.

    After damage the scan continues at the next intact header. Bytes between records are damaged or unfinished.
    """
    view = memoryview(data)
    at = 0
    while at < len(data):
        found = find_record(view, at, salt, origin + at)
        if found is not None:
            yield found
            at += found.size
            continue
        at = data.find(RECORD_MAGIC, at + 1)
        if at < 0:
            return
        at += -at % ALIGNMENT


class ShiftedRecord(NamedTuple):
    """An intact record that is `shift` bytes behind the place where it was written; before it if negative."""

    found: FoundRecord
    shift: int


def scan_shifted_records(data: bytes, salt: int, origin: int) -> Iterator[ShiftedRecord]:
    """Yield the intact records in `data` that are not where they were written, because bytes were inserted or cut out.

    `FoundRecord.offset` is the present offset. `data` begins at `origin` in its segment, and has no record where it was
    written.
    """
    view = memoryview(data)
    at = data.find(RECORD_MAGIC)
    shift, strays = 0, MAX_STRAYS
    while at >= 0:
        found = find_record(view, at, salt, origin + at - shift)
        if found is None and strays and _has_intact_body(view, at):
            strays -= 1
            shift = _shift(view, at, salt, origin + at)
            found = find_record(view, at, salt, origin + at - shift)
        if found is None or not found.intact:
            at = data.find(RECORD_MAGIC, at + 1)
            continue
        yield ShiftedRecord(found._replace(offset=origin + at), shift)
        at += found.size
        if data[at : at + len(RECORD_MAGIC)] != RECORD_MAGIC:
            at = data.find(RECORD_MAGIC, at)


def is_unfinished(tail: bytes, salt: int, offset: int) -> bool:
    """Return whether `tail`, which follows the last intact record of a segment, comes from an unfinished write.

    It does if it is the beginning of a record, or if the end of the record is zeros. Anything else is damage.
    """
    written = len(tail.rstrip(b"\0"))
    if written < RECORD_HEADER.size:
        return True
    header = parse_header(memoryview(tail), 0, salt, offset)
    if header is None:
        return False
    size = record_size(header.length)
    return size > len(tail) or written + UNWRITTEN_BYTES <= size


def _has_intact_body(data: memoryview, at: int) -> bool:
    """Return whether a record at `data[at:]` has an intact body. The checksum of its header is not verified."""
    if len(data) - at < RECORD_HEADER.size:
        return False
    header = Header(*RECORD_HEADER.unpack_from(data, at)[2:])
    body = at + RECORD_HEADER.size
    if header.kind not in list(RecordKind) or header.length > MAX_BODY_BYTES or body + header.length > len(data):
        return False
    return crc32(data[body : body + header.length]) == header.body_crc


def _shift(data: memoryview, at: int, salt: int, position: int) -> int:
    """Return how far the record at `data[at:]`, now at `position`, is behind the place where it was written.

    Returns 0 if that is unknown.
    """
    crc, rest = RECORD_HEADER.unpack_from(data, at)[1], data[at + 8 : at + RECORD_HEADER.size]
    first = max(position - MAX_SHIFT, SEGMENT_HEADER.size)
    for offset in range(first + -first % ALIGNMENT, position + MAX_SHIFT, ALIGNMENT):
        if crc32(rest, crc32(_SEAL.pack(salt, offset))) == crc:
            return position - offset
    return 0
