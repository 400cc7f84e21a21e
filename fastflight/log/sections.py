"""The sections of Parquet files, which are row groups and footers, each with the crc32 of its bytes.

The same checksums are stored in the file itself, as a seal before the footer, where Parquet readers ignore extra bytes.
So the file can be verified without any other file.

    seal      crc32 u32 of each row group and of the footer; their count u32; crc32 u32 of the seal so far; magic 8
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
_SECTION = struct.Struct("<IiQQI")
_SUM = struct.Struct("<I")
_SEAL_END = struct.Struct("<II8s")
_SEAL_MAGIC = b"FFSUM 1\n"
FOOTER = -1


class Section(NamedTuple):
    """Bytes of a file with their crc32: row group `group` of file number `file`, or its `FOOTER`."""

    file: int
    group: int
    offset: int
    size: int
    crc: int


class Sections:
    """A packed sequence of `Section`. A GB of recordings has hundreds; as objects they take eight times the memory."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        """Raises `struct.error` for bytes that are not a whole number of sections."""
        if len(packed) % _SECTION.size:
            raise struct.error("not a whole number of sections")
        self.packed = packed

    @classmethod
    def of(cls, sections: Iterable[Section]) -> Sections:
        return cls(b"".join(_SECTION.pack(*section) for section in sections))

    @staticmethod
    def packed_size(count: int) -> int:
        """Return the packed size of `count` sections."""
        return count * _SECTION.size

    def __len__(self) -> int:
        return len(self.packed) // _SECTION.size

    def __getitem__(self, number: int) -> Section:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Section(*_SECTION.unpack_from(self.packed, number * _SECTION.size))

    def __iter__(self) -> Iterator[Section]:
        return (Section(*section) for section in _SECTION.iter_unpack(self.packed))


def seal(file: File, number: int) -> list[Section]:
    """Insert the seal into a new Parquet file. Return its row groups, then its footer."""
    start, footer = _footer(file)
    groups = [(at, size, crc32(read_exactly(file, at, size))) for at, size in _row_groups(footer, start)]
    sums = b"".join(_SUM.pack(crc) for *_, crc in groups) + _SUM.pack(crc32(footer))
    sums += _SUM.pack(len(groups) + 1)
    sums += _SUM.pack(crc32(sums)) + _SEAL_MAGIC
    file.truncate(start)
    write_all(file, [sums, footer])
    sections = [Section(number, group, *rest) for group, rest in enumerate(groups)]
    return [*sections, Section(number, FOOTER, start + len(sums), len(footer), crc32(footer))]


def read_seal(file: File, number: int) -> list[Section]:
    """Return the row groups of a sealed file, then its footer.

    Raises `ArrowInvalid` if the seal or the footer is damaged.
    """
    start, footer = _footer(file)
    end = start - _SEAL_END.size
    count, crc, magic = _SEAL_END.unpack(read_exactly(file, end, _SEAL_END.size))
    begin = end - count * _SUM.size
    sums = read_exactly(file, begin, end + _SUM.size - begin) if begin >= 0 else b""
    if magic != _SEAL_MAGIC or crc32(sums) != crc:
        raise pa.ArrowInvalid("no seal before the footer")
    *group_crcs, footer_crc = (crc for (crc,) in _SUM.iter_unpack(sums[: -_SUM.size]))
    if crc32(footer) != footer_crc:
        raise pa.ArrowInvalid("another footer than was sealed")
    groups = zip(_row_groups(footer, end), group_crcs, strict=True)
    sections = [Section(number, group, *place, crc) for group, (place, crc) in enumerate(groups)]
    return [*sections, Section(number, FOOTER, start, len(footer), footer_crc)]


def _footer(file: File) -> tuple[int, bytes]:
    """Return where the footer of a file begins, and the bytes from there to the end of the file."""
    size = file.size()
    length, _ = _PARQUET_END.unpack(read_exactly(file, size - _PARQUET_END.size, _PARQUET_END.size))
    start = size - _PARQUET_END.size - length
    if start < 0:
        raise pa.ArrowInvalid("the footer is longer than the file")
    return start, read_exactly(file, start, size - start)


def _row_groups(footer: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the size of each row group."""
    metadata = pq.read_metadata(pa.BufferReader(footer))
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        begins = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
        begin = min(begins)
        stop = max(at + c.total_compressed_size for at, c in zip(begins, columns, strict=True))
        if not 0 <= begin <= stop <= end:
            raise pa.ArrowInvalid("a row group that is not in the file")
        yield begin, stop - begin
