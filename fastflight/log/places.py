"""Where the row groups of Parquet files lie, and their footers, each with the crc32 of its bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.log.disk import File
from fastflight.log.segment import read_exactly

# The end of a Parquet file: the footer's size, and a magic.
_PARQUET_END = struct.Struct("<I4s")
_PLACE = struct.Struct("<IiQQI")
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


def places_of(file: File, number: int, groups: Sequence[int] | None = None) -> list[Place]:
    """The row groups, all or these, and the footer of a Parquet file that was just written, or is believed."""
    size = file.size()
    length, _ = _PARQUET_END.unpack(file.read(size - _PARQUET_END.size, _PARQUET_END.size))
    start = size - _PARQUET_END.size - length
    if start < 0:
        raise pa.ArrowInvalid("the footer is longer than the file")
    footer = read_exactly(file, start, size - start)
    metadata = pq.read_metadata(pa.BufferReader(footer))
    places: list[Place] = []
    for group in range(metadata.num_row_groups) if groups is None else groups:
        columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        begins = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
        begin = min(begins)
        end = max(at + c.total_compressed_size for at, c in zip(begins, columns, strict=True))
        if not 0 <= begin <= end <= start:
            raise pa.ArrowInvalid("a row group that is not in the file")
        places.append(Place(number, group, begin, end - begin, crc32(read_exactly(file, begin, end - begin))))
    return [*places, Place(number, FOOTER, start, size - start, crc32(footer))]
