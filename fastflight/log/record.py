"""How bytes lie in a segment: a header, then records, each on a multiple of 8 bytes.

    segment   "FFLOG 1\\n"  salt u64  ordinal u64  created i64 (us UTC)  crc u32, zeros up to 64 bytes
    record    "FFr1"  header crc u32  kind u32  body crc u32  stream u64  first u64  rows u64  length u64
              first time i64  last time i64 (us UTC), then `length` bytes of body, zeros up to a multiple of 8

All little endian. The crc32 of a record's header starts from the segment's salt and the record's offset, and covers the
body's crc: bytes of another file, of another place, or of a recording of a recording never pass for a record here. The
body has a crc of its own so that it is summed once, by whoever appends, and so that a header can be trusted, and its
rows counted as lost, where the body is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

ALIGNMENT = 8
# A batch is held whole to be written and to be checked. Longer ones are refused: split them.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Records behind bytes that were inserted or cut out are looked for at most this far from where they were written.
MAX_SHIFT = 1024 * 1024
# Each distance that is tried costs a microsecond or less: for this many records whose distance cannot be found, a few
# seconds in all.
MAX_STRAYS = 64
# What a power cut kept from being written reads as zeros: more of them than a record ends in by itself, as a rule.
UNWRITTEN_BYTES = 64

SEGMENT_HEADER = struct.Struct("<8sQQqI28x")
RECORD_HEADER = struct.Struct("<4sIIIQQQQqq")
_SEAL = struct.Struct("<QQ")
_SEGMENT_MAGIC = b"FFLOG 1\n"
RECORD_MAGIC = b"FFr1"
_ZEROS = bytes(ALIGNMENT)


class RecordKind(IntEnum):
    """What a record holds. `first` and `rows` say which sequence numbers it speaks of."""

    # An encapsulated Arrow message: `rows` rows from `first`.
    BATCH = 1
    # A log's name, schema, first kept and next number: self-contained segments need no manifest.
    STATE = 2
    # Numbers that whoever appended left out. Its times say whether rows were lost there (`index.LOST`, `PAUSE`).
    SKIP = 3


class Header(NamedTuple):
    """A record's header, checked."""

    kind: int
    body_crc: int
    stream: int
    first: int
    rows: int
    length: int
    first_time: int
    last_time: int


class SegmentHeader(NamedTuple):
    salt: int
    ordinal: int
    created: int


class Found(NamedTuple):
    """A record in a buffer: its offset in the segment, its bytes with padding, its header; `intact`: the body's crc."""

    offset: int
    size: int
    header: Header
    intact: bool


def segment_header(salt: int, ordinal: int, created: int) -> bytes:
    start = SEGMENT_HEADER.pack(_SEGMENT_MAGIC, salt, ordinal, created, 0)
    return SEGMENT_HEADER.pack(_SEGMENT_MAGIC, salt, ordinal, created, crc32(start))


def parse_segment_header(data: bytes) -> SegmentHeader | None:
    """The header at the start of a segment; None where it is damaged or not there."""
    if len(data) < SEGMENT_HEADER.size:
        return None
    magic, salt, ordinal, created, crc = SEGMENT_HEADER.unpack_from(data)
    if magic != _SEGMENT_MAGIC or crc32(SEGMENT_HEADER.pack(magic, salt, ordinal, created, 0)) != crc:
        return None
    return SegmentHeader(salt, ordinal, created)


def record_size(length: int) -> int:
    """Bytes of a record whose body has `length`."""
    return RECORD_HEADER.size + length + -length % ALIGNMENT


def frame(header: Header, body: bytes | memoryview, salt: int, offset: int) -> list[bytes | memoryview]:
    """The record as it is written at `offset`."""
    packed = RECORD_HEADER.pack(RECORD_MAGIC, 0, *header)
    crc = crc32(memoryview(packed)[8:], crc32(_SEAL.pack(salt, offset)))
    pieces: list[bytes | memoryview] = [packed[:4] + crc.to_bytes(4, "little") + packed[8:]]
    if header.length:
        pieces.append(body)
        if padding := -header.length % ALIGNMENT:
            pieces.append(_ZEROS[:padding])
    return pieces


def parse_header(data: memoryview, at: int, salt: int, offset: int) -> Header | None:
    """The header of the record at `data[at:]`, which lies at `offset` in its segment; None where none is intact."""
    if len(data) - at < RECORD_HEADER.size:
        return None
    magic, crc, *fields = RECORD_HEADER.unpack_from(data, at)
    if magic != RECORD_MAGIC:
        return None
    if crc32(data[at + 8 : at + RECORD_HEADER.size], crc32(_SEAL.pack(salt, offset))) != crc:
        return None
    header = Header(*fields)
    return header if header.length <= MAX_BODY_BYTES else None


def find(data: memoryview, at: int, salt: int, offset: int) -> Found | None:
    """The record that starts at `data[at:]`; None where its header is damaged or `data` ends within it."""
    header = parse_header(data, at, salt, offset)
    if header is None:
        return None
    body = at + RECORD_HEADER.size
    size = record_size(header.length)
    if at + size > len(data):
        return None
    return Found(offset, size, header, crc32(data[body : body + header.length]) == header.body_crc)


def scan(data: bytes, salt: int, origin: int) -> Iterator[Found]:
    """Every record in `data`, which lies at `origin` in its segment. What is between them was damaged, or torn.

    After damage it goes on at the next header that is intact. The last record may be one that is not `intact`.
    """
    view = memoryview(data)
    at = 0
    while at < len(data):
        found = find(view, at, salt, origin + at)
        if found is not None:
            yield found
            at += found.size
            continue
        at = data.find(RECORD_MAGIC, at + 1)
        if at < 0:
            return
        at += -at % ALIGNMENT


class Shifted(NamedTuple):
    """An intact record that lies `shift` bytes behind the place that it was written to; before it, if negative."""

    found: Found
    shift: int


def scan_shifted(data: bytes, salt: int, origin: int) -> Iterator[Shifted]:
    """Intact records in `data` that do not lie where they were written: bytes before them were inserted or cut out.

    The offset of each is where it lies now. `data` lies at `origin` in its segment and holds no record in its place.
    """
    view = memoryview(data)
    at = data.find(RECORD_MAGIC)
    shift, strays = 0, MAX_STRAYS
    while at >= 0:
        found = find(view, at, salt, origin + at - shift)
        if found is None and strays and _is_sound(view, at):
            strays -= 1
            shift = _shift(view, at, salt, origin + at)
            found = find(view, at, salt, origin + at - shift)
        if found is None or not found.intact:
            at = data.find(RECORD_MAGIC, at + 1)
            continue
        yield Shifted(found._replace(offset=origin + at), shift)
        at += found.size
        if data[at : at + len(RECORD_MAGIC)] != RECORD_MAGIC:
            at = data.find(RECORD_MAGIC, at)


def is_unfinished(tail: bytes, salt: int, offset: int) -> bool:
    """Whether `tail`, which follows the last intact record of a segment, is what a write leaves that never finished.

    That is the beginning of a record, or zeros where the rest of one was not written. Anything else was damaged later.
    """
    there = len(tail.rstrip(b"\0"))
    if there < RECORD_HEADER.size:
        return True
    header = parse_header(memoryview(tail), 0, salt, offset)
    if header is None:
        return False
    size = record_size(header.length)
    return size > len(tail) or there + UNWRITTEN_BYTES <= size


def _is_sound(data: memoryview, at: int) -> bool:
    """Whether a record at `data[at:]` has a sound body. The checksum of its header is not looked at."""
    if len(data) - at < RECORD_HEADER.size:
        return False
    header = Header(*RECORD_HEADER.unpack_from(data, at)[2:])
    body = at + RECORD_HEADER.size
    if header.kind not in list(RecordKind) or header.length > MAX_BODY_BYTES or body + header.length > len(data):
        return False
    return crc32(data[body : body + header.length]) == header.body_crc


def _shift(data: memoryview, at: int, salt: int, position: int) -> int:
    """How far behind the place it was written to the record at `data[at:]` lies, which is at `position`; 0: unknown."""
    crc, rest = RECORD_HEADER.unpack_from(data, at)[1], data[at + 8 : at + RECORD_HEADER.size]
    first = max(position - MAX_SHIFT, SEGMENT_HEADER.size)
    for offset in range(first + -first % ALIGNMENT, position + MAX_SHIFT, ALIGNMENT):
        if crc32(rest, crc32(_SEAL.pack(salt, offset))) == crc:
            return position - offset
    return 0
