"""Where the row groups of Parquet files lie, and their footers, each with the crc32 of its bytes.

A file is sealed: the same crc32s lie in it before the footer, where Parquet allows for bytes that no reader looks at.
So it can be believed without any other file.

    seal      crc32 u32 of each row group, of the footer; then how many u32, crc32 u32 of all before it here, magic 8
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.log.disk import File, write_all
from fastflight.log.segment import read_exactly

# The end of a Parquet file: the footer's size, and a magic.
_PARQUET_END = struct.Struct("<I4s")
_PLACE = struct.Struct("<IiQQI")
_SUM = struct.Struct("<I")
_SEAL_END = struct.Struct("<II8s")
_SEAL_MAGIC = b"FFSUM 1\n"
FOOTER = -1


class Place(NamedTuple):
    """Bytes of a file with their crc32: row group `group` of file number `file`, or its `FOOTER`."""

    file: int
    group: int
    offset: int
    size: int
    crc: int


class Places:
    """Many of them, as they are stored: a GB of recordings has hundreds, which as objects take eight times as much."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        """`struct.error` for bytes that are not a whole number of places."""
        if len(packed) % _PLACE.size:
            raise struct.error("not a whole number of places")
        self.packed = packed

    @classmethod
    def of(cls, places: Iterable[Place]) -> Places:
        return cls(b"".join(_PLACE.pack(*place) for place in places))

    @staticmethod
    def bytes_of(count: int) -> int:
        """What so many take."""
        return count * _PLACE.size

    def __len__(self) -> int:
        return len(self.packed) // _PLACE.size

    def __getitem__(self, number: int) -> Place:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Place(*_PLACE.unpack_from(self.packed, number * _PLACE.size))

    def __iter__(self) -> Iterator[Place]:
        return (Place(*place) for place in _PLACE.iter_unpack(self.packed))


def seal(file: File, number: int) -> list[Place]:
    """Seal a Parquet file that was just written: its row groups, and its footer."""
    start, footer = _footer(file)
    groups = [(at, size, crc32(read_exactly(file, at, size))) for at, size in _row_groups(footer, start)]
    sums = b"".join(_SUM.pack(crc) for *_, crc in groups) + _SUM.pack(crc32(footer))
    sums += _SUM.pack(len(groups) + 1)
    sums += _SUM.pack(crc32(sums)) + _SEAL_MAGIC
    file.truncate(start)
    write_all(file, [sums, footer])
    places = [Place(number, group, *place) for group, place in enumerate(groups)]
    return [*places, Place(number, FOOTER, start + len(sums), len(footer), crc32(footer))]


def sealed(file: File, number: int) -> list[Place]:
    """The row groups and the footer of a sealed file; `ArrowInvalid` where seal or footer is not as it was written."""
    start, footer = _footer(file)
    end = start - _SEAL_END.size
    count, crc, magic = _SEAL_END.unpack(read_exactly(file, end, _SEAL_END.size))
    begin = end - count * _SUM.size
    sums = read_exactly(file, begin, end + _SUM.size - begin) if begin >= 0 else b""
    if magic != _SEAL_MAGIC or crc32(sums) != crc:
        raise pa.ArrowInvalid("no seal before the footer")
    *of_groups, of_footer = (crc for (crc,) in _SUM.iter_unpack(sums[: -_SUM.size]))
    if crc32(footer) != of_footer:
        raise pa.ArrowInvalid("another footer than was sealed")
    groups = zip(_row_groups(footer, end), of_groups, strict=True)
    places = [Place(number, group, *place, crc) for group, (place, crc) in enumerate(groups)]
    return [*places, Place(number, FOOTER, start, len(footer), of_footer)]


def _footer(file: File) -> tuple[int, bytes]:
    """Where the footer of a file begins, and its bytes, to the end of the file."""
    size = file.size()
    length, _ = _PARQUET_END.unpack(read_exactly(file, size - _PARQUET_END.size, _PARQUET_END.size))
    start = size - _PARQUET_END.size - length
    if start < 0:
        raise pa.ArrowInvalid("the footer is longer than the file")
    return start, read_exactly(file, start, size - start)


def _row_groups(footer: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Where each row group begins, and its size."""
    metadata = pq.read_metadata(pa.BufferReader(footer))
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        begins = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
        begin = min(begins)
        stop = max(at + c.total_compressed_size for at, c in zip(begins, columns, strict=True))
        if not 0 <= begin <= stop <= end:
            raise pa.ArrowInvalid("a row group that is not in the file")
        yield begin, stop - begin
