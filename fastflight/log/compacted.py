"""Compacted parts: the rows of several closed segments as Parquet files, one per schema, for any tool to read.

A file has the columns of its logs and two more: the log's name and the row's number. A row group holds rows of one log,
in order. An index entry describes a run of rows whose numbers have no hole, and names their row group. An index file
(`.parts`) is stored with the Parquet files: it has the crc32 of each row group and of each footer, then a sidecar like
that of a segment. If the index file is lost, the seal of each Parquet file has the same checksums. Bytes are read and
their checksum is verified before they are decoded, as everywhere in the log.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastflight.log.content import TIME_COLUMN, TIME_TYPE, Codec, LogState, log_number
from fastflight.log.disk import Disk, File
from fastflight.log.index import MAX_SEQ, Entries, Index, IndexEntry, stored_entries
from fastflight.log.sections import FOOTER, Section, Sections, read_seal
from fastflight.log.segment import SEGMENT_NAME, ReadResult, parse_segment_name, read_exactly

INDEX_NAME = re.compile(r"(\d{12,})-(\d{12,})\.parts")
PARQUET_NAME = re.compile(r"(\d{12,})-(\d{12,})\.(\d+)of(\d+)\.parquet")
LOG_COLUMN = "fastflight.log"
SEQ_COLUMN = "fastflight.seq"

# The columns from which the index of a row group can be derived.
INDEX_COLUMNS = [(LOG_COLUMN, pa.string()), (SEQ_COLUMN, pa.uint64()), (TIME_COLUMN, TIME_TYPE)]
# The errors of reading a damaged file. Arrow's own read errors include `OSError`.
READ_ERRORS = (pa.ArrowException, OSError, ValueError, struct.error)

_TABLE = struct.Struct("<8sQII")
_MAGIC = b"FFPRT 1\n"


@dataclass(slots=True, eq=False)
class Compacted:
    """A part made of Parquet files. `sections` has every row group, then every footer."""

    disk: Disk
    ordinal: int
    last_ordinal: int
    names: list[str]
    sections: Sections
    size: int
    index: Index = field(default_factory=Index)
    # By the number of a section: whether its bytes have their checksum, once they were read for another reader.
    checked: dict[int, bool] = field(default_factory=dict)
    # By the numbers of a file and of a log: row groups of the log, and a footer that has only them.
    footers: dict[tuple[int, int], tuple[tuple[int, ...], bytes]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return index_name(self.ordinal, self.last_ordinal)

    @property
    def files(self) -> list[str]:
        return [self.name, *self.names]

    def entries(self, number: int) -> Entries | None:
        """Return the entries of a log; None if it has none here. Only entries that had to be derived are cached."""
        log_index = self.index.logs.get(number)
        if log_index is None:
            return None
        if log_index.entries is not None:
            return log_index.entries
        entries = stored_entries(log_index, self.disk, self.name, self._sidecar_offset)
        if entries is None:
            derived = self.derive_index().logs.get(number)
            entries = log_index.entries = derived.entries if derived is not None else Entries()
        return entries

    def derive_index(self) -> Index:
        """Derive the index from the row groups, without the entries of numbers that have no rows.

        A row group that cannot be read becomes damage.
        """
        index = Index()
        footers: dict[int, pq.FileMetaData | None] = {}
        for number, section in enumerate(self.sections):
            if section.group == FOOTER:
                continue
            if section.file not in footers:
                footers[section.file] = self._footer(section.file)
            metadata = footers[section.file]
            table = self._columns(section, metadata, [name for name, _ in INDEX_COLUMNS]) if metadata else None
            try:
                if table is None or metadata is None:
                    raise ValueError("a row group that is damaged")
                _add_row_group(index, number, section, table, _schema(metadata))
            except READ_ERRORS:
                index.add_damage(section.offset, section.size)
        return index

    @property
    def _sidecar_offset(self) -> int:
        """The offset in the index file at which the sidecar begins: after the packed sections."""
        return _TABLE.size + len(self.sections.packed)

    def read(
        self, entries: Entries, start: int, stop: int, number: int, codec: Codec
    ) -> Generator[ReadResult, None, None]:
        footers: dict[int, pq.FileMetaData | None] = {}
        at, group = -1, None
        for i in range(start, stop):
            entry = entries[i]
            if not entry.size:
                yield ReadResult(entry, None)
                continue
            section = self.sections[entry.offset]
            if section.file not in footers:
                footers[section.file] = self._footer(section.file)
            metadata = footers[section.file]
            if at != entry.offset:
                at, group = entry.offset, None  # free this row group before the next one is read
                group = self._group(section, metadata, codec) if metadata is not None else None
            if group is not None:
                yield ReadResult(entry, group.run(entry))
            else:
                self.index.add_damage(section.offset, section.size)
                yield ReadResult(entry, None, f"{self.names[section.file]} is damaged at byte {section.offset}")

    def is_whole(self) -> bool:
        """Whether all bytes of its Parquet files can be read and are as they were written."""
        return not self.index.damage and all(self._read_verified(section) is not None for section in self.sections)

    def encode(self) -> Iterator[bytes]:
        """Yield the content of the index file."""
        table = self.sections.packed
        start = _TABLE.pack(_MAGIC, self.size, len(self.sections), 0)
        yield _TABLE.pack(_MAGIC, self.size, len(self.sections), crc32(table, crc32(start)))
        yield table
        yield from self.index.encode(self.size)

    def is_intact(self, number: int, file: File) -> bool:
        """Return whether a section of the open `file` has its checksum. It is read once: the answer is kept.

        Damage is added to the index.
        """
        known = self.checked.get(number)
        if known is None:
            section = self.sections[number]
            known = self.checked[number] = _verified(file, section) is not None
            if not known:
                self.index.add_damage(section.offset, section.size)
        return known

    def footer_bytes(self, number: int) -> bytes | None:
        """Return the footer of a file, with its size and magic; None if it is damaged."""
        section = next(section for section in self.sections if section.file == number and section.group == FOOTER)
        return self._read_verified(section)

    def _footer(self, number: int) -> pq.FileMetaData | None:
        data = self.footer_bytes(number)
        if data is None:
            return None
        return pq.read_metadata(pa.BufferReader(data))

    def _group(self, section: Section, metadata: pq.FileMetaData, codec: Codec) -> _Group | None:
        table = self._columns(section, metadata)
        if table is None:
            return None
        try:
            return _Group(table.column(SEQ_COLUMN), to_batch(table.drop_columns([SEQ_COLUMN]), codec.schema))
        except READ_ERRORS:
            return None

    def _columns(self, section: Section, metadata: pq.FileMetaData, names: Sequence[str] = ()) -> pa.Table | None:
        """Return the columns `names` of a row group, by default all but the log's name; None if it is damaged."""
        data = self._read_verified(section)
        if data is None:
            return None
        size = metadata.serialized_size + section.offset + section.size
        try:
            window = _VerifiedBytes(section.offset, data, size)
            with pq.ParquetFile(window, metadata=metadata) as file:
                columns = list(names) or [name for name in file.schema_arrow.names if name != LOG_COLUMN]
                return file.read_row_group(section.group, columns=columns, use_threads=False)
        except READ_ERRORS:
            return None

    def _read_verified(self, section: Section) -> bytes | None:
        """Return the bytes of a section; None if they cannot be read or their checksum is wrong."""
        file = self.disk.open(self.names[section.file])
        try:
            return _verified(file, section)
        finally:
            file.close()


def _verified(file: File, section: Section) -> bytes | None:
    try:
        data = read_exactly(file, section.offset, section.size)
    except OSError:
        return None
    return data if len(data) == section.size and crc32(data) == section.crc else None


def _schema(metadata: pq.FileMetaData) -> pa.Schema:
    """Return the schema of a file.

    This avoids `metadata.schema`: the two objects refer to each other, and so keep the footer until the next cyclic
    garbage collection.
    """
    with pq.ParquetFile(_VerifiedBytes(0, b"", metadata.serialized_size), metadata=metadata) as file:
        return file.schema_arrow


class _Group(NamedTuple):
    """The rows of a row group, and their numbers."""

    numbers: pa.ChunkedArray
    rows: pa.RecordBatch

    def run(self, entry: IndexEntry) -> pa.RecordBatch:
        """Return the rows of one of its entries."""
        if entry.rows == self.rows.num_rows:
            return self.rows
        return self.rows.slice(pc.index(self.numbers, entry.first).as_py(), entry.rows)


def stored_bytes(section: Section, rows: int, of: int) -> int:
    """Return the bytes that `rows` of the `of` rows in a row group take; at least 1: size 0 means no rows."""
    return max(1, section.size * rows // of)


def to_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return a row group as one batch of exactly `schema`."""
    columns = [pa.concat_arrays(column.chunks) for column in table.columns]
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


class _VerifiedBytes(io.RawIOBase):
    """A file object of which only the verified bytes `data`, at `offset`, can be read."""

    def __init__(self, offset: int, data: bytes, size: int = 0) -> None:
        self._offset = offset
        self._data = data
        self._size = max(size, offset + len(data))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start = self._at - self._offset
        end = len(self._data) if size < 0 else start + size
        if start < 0 or start > len(self._data):
            raise OSError("bytes that were not verified")
        data = self._data[start:end]
        self._at += len(data)
        return data


def index_name(first: int, last: int) -> str:
    """Return the name of a part's index file."""
    return f"{first:012d}-{last:012d}.parts"


def parquet_names(first: int, last: int, count: int) -> list[str]:
    """Return the names of a part's Parquet files. `Section.file` is an index into this list."""
    return [f"{first:012d}-{last:012d}.{number}of{count}.parquet" for number in range(1, count + 1)]


def find_compacted(disk: Disk, names: Sequence[str]) -> list[Compacted]:
    """Return the compacted parts of a folder, in order.

    A part without its index file counts only if it has all its Parquet files and its segments are gone.
    """
    parts: dict[tuple[int, int, int], int] = {}
    for name in names:
        if match := PARQUET_NAME.fullmatch(name):
            key = int(match[1]), int(match[2]), int(match[4])
            parts[key] = parts.get(key, 0) + 1
    found: list[Compacted] = []
    for (first, last, count), present in sorted(parts.items()):
        index = index_name(first, last)
        segments = any(SEGMENT_NAME.fullmatch(name) and first <= parse_segment_name(name)[0] <= last for name in names)
        if index in names or (present == count and not segments):
            files = parquet_names(first, last, count)
            part = _load_part(disk, first, last, files, index) if index in names else None
            found.append(part or rebuild_part(disk, first, last, files, names))
    return found


def _load_part(disk: Disk, first: int, last: int, names: list[str], index: str) -> Compacted | None:
    """Load a part from its index file; None if that is damaged or cannot be read."""
    try:
        file = disk.open(index)
    except OSError:
        return None
    try:
        start = file.read(0, _TABLE.size)
        if len(start) < _TABLE.size:
            return None
        magic, size, count, crc = _TABLE.unpack(start)
        table = file.read(_TABLE.size, Sections.packed_size(count))
        if magic != _MAGIC or crc32(table, crc32(_TABLE.pack(magic, size, count, 0))) != crc:
            return None
        part = Compacted(disk, first, last, names, Sections(table), size)
        sidecar = Index.decode(lambda at, length: file.read(part._sidecar_offset + at, length), size)
        if sidecar is None:
            return None
        part.index = sidecar
        return part
    except (OSError, struct.error):
        return None
    finally:
        file.close()


def rebuild_part(disk: Disk, first: int, last: int, names: list[str], listed: Collection[str]) -> Compacted:
    """Build a compacted part from its Parquet files alone.

    A file without an intact seal, or that is not in `listed`, becomes damage.
    """
    part = Compacted(disk, first, last, names, Sections(), 0)
    damage: list[tuple[int, int]] = []
    groups: list[Section] = []
    footers: list[Section] = []
    for number, name in enumerate(names):
        if name not in listed:
            damage.append((0, 0))
            continue
        file = disk.open(name)
        try:
            part.size += file.size()
            *file_groups, footer = read_seal(file, number)
        except READ_ERRORS:
            damage.append((0, file.size()))
        else:
            groups += file_groups
            footers.append(footer)
        finally:
            file.close()
    part.sections = Sections.of([*groups, *footers])
    part.index = part.derive_index()
    for place in damage:
        part.index.add_damage(*place)
    return part


def _add_row_group(index: Index, number: int, section: Section, table: pa.Table, wide: pa.Schema) -> None:
    """Add a row group, which is section `number` of its part, to `index`.

    Raises `ValueError` if it is not as it was written.
    """
    if [(field.name, field.type) for field in table.schema] != INDEX_COLUMNS:
        raise ValueError("other columns")
    if not table.num_rows or any(column.null_count for column in table.columns):
        raise ValueError("a row without a log, a number or a time")
    name, numbers = table.column(0)[0].as_py(), table.column(1).to_pylist()
    known = index.logs.get(log_number(name))
    least = known.next if known is not None else 0
    if not all(low < high for low, high in pairwise([least - 1, *numbers, MAX_SEQ])):
        raise ValueError("numbers that do not ascend")
    times = table.column(2).combine_chunks().cast(pa.int64()).to_pylist()
    schema = pa.schema([field for field in wide if field.name not in (LOG_COLUMN, SEQ_COLUMN)], wide.metadata)
    # Which rows were trimmed is unknown; the rows that are here were not.
    log_index = index.set_state(LogState(0, numbers[0], name, Codec(schema).message))
    ends = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    for start, end in pairwise([0, *ends, len(numbers)]):
        size, run_times = stored_bytes(section, end - start, len(numbers)), times[start:end]
        log_index.add(IndexEntry(number, size, numbers[start], end - start, min(run_times), max(run_times)))
