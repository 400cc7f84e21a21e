"""Compacted parts: the rows of some closed segments as Parquet files, one per schema, for any tool to read.

A file has the columns of its logs and two more: the log's name and the row's number. A row group holds rows of one log,
in order; an entry of the index is a run of them whose numbers have no hole, and names the group. Beside the files lies
their index: the crc32 of each row group and of each footer, then a sidecar like a segment's. Where it is lost, the seal
of each file has those crc32s. What is decoded is bytes that were read and summed first, as everywhere.
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

from fastflight.log.content import TIME_COLUMN, TIME_TYPE, Codec, LogState, stream_of
from fastflight.log.disk import Disk
from fastflight.log.index import MAX_SEQ, Entries, Index, IndexEntry, stored_entries
from fastflight.log.places import FOOTER, Place, Places, sealed
from fastflight.log.segment import SEGMENT_NAME, Read, named, read_exactly

INDEX_NAME = re.compile(r"(\d{12})-(\d{12})\.parts")
PARQUET_NAME = re.compile(r"(\d{12})-(\d{12})\.(\d+)of(\d+)\.parquet")
LOG_COLUMN = "fastflight.log"
SEQ_COLUMN = "fastflight.seq"

# What tells which rows a row group holds.
DERIVED = [(LOG_COLUMN, pa.string()), (SEQ_COLUMN, pa.uint64()), (TIME_COLUMN, TIME_TYPE)]
# What reading a file may raise that is not as it was written. Arrow's own errors of reading are `OSError` as well.
UNREADABLE = (pa.ArrowException, OSError, ValueError, struct.error)

_TABLE = struct.Struct("<8sQII")
_MAGIC = b"FFPRT 1\n"


@dataclass(slots=True, eq=False)
class Compacted:
    """A part made of Parquet files. `places`: every row group, then every footer."""

    disk: Disk
    ordinal: int
    last_ordinal: int
    names: list[str]
    places: Places
    size: int
    index: Index = field(default_factory=Index)

    @property
    def name(self) -> str:
        return f"{self.ordinal:012d}-{self.last_ordinal:012d}.parts"

    @property
    def files(self) -> list[str]:
        return [self.name, *self.names]

    def entries(self, number: int) -> Entries | None:
        """The entries of a stream; None where it has none here. Only those that had to be derived are kept."""
        stream = self.index.streams.get(number)
        if stream is None:
            return None
        if stream.entries is not None:
            return stream.entries
        entries = stored_entries(stream, self.disk, self.name, self._sidecar)
        if entries is None:
            derived = self.derived().streams.get(number)
            entries = stream.entries = derived.entries if derived is not None else Entries()
        return entries

    def derived(self) -> Index:
        """The index as the row groups themselves give it. One that cannot be read is damage; holes are not known."""
        index = Index()
        footers: dict[int, pq.FileMetaData | None] = {}
        for number, place in enumerate(self.places):
            if place.group == FOOTER:
                continue
            if place.file not in footers:
                footers[place.file] = self._footer(place.file)
            metadata = footers[place.file]
            table = self._columns(place, metadata, [name for name, _ in DERIVED]) if metadata else None
            try:
                if table is None or metadata is None:
                    raise ValueError("a row group that is damaged")
                _derive(index, number, place, table, _schema(metadata))
            except UNREADABLE:
                index.damaged(place.offset, place.size)
        return index

    @property
    def _sidecar(self) -> int:
        """Where the sidecar begins in the index file."""
        return _TABLE.size + len(self.places.packed)

    def read(self, entries: Entries, start: int, stop: int, number: int, codec: Codec) -> Generator[Read, None, None]:
        footers: dict[int, pq.FileMetaData | None] = {}
        at, group = -1, None
        for i in range(start, stop):
            entry = entries[i]
            if not entry.size:
                yield Read(entry, None)
                continue
            place = self.places[entry.offset]
            if place.file not in footers:
                footers[place.file] = self._footer(place.file)
            metadata = footers[place.file]
            if at != entry.offset:
                at, group = entry.offset, None  # let go of one before the next
                group = self._group(place, metadata, codec) if metadata is not None else None
            if group is not None:
                yield Read(entry, group.run(entry))
            else:
                self.index.damaged(place.offset, place.size)
                yield Read(entry, None, f"{self.names[place.file]} is damaged at byte {place.offset}")

    def encode(self) -> Iterator[bytes]:
        """The index file."""
        table = self.places.packed
        start = _TABLE.pack(_MAGIC, self.size, len(self.places), 0)
        yield _TABLE.pack(_MAGIC, self.size, len(self.places), crc32(table, crc32(start)))
        yield table
        yield from self.index.encode(self.size)

    def _footer(self, number: int) -> pq.FileMetaData | None:
        place = next(place for place in self.places if place.file == number and place.group == FOOTER)
        data = self._verified(place)
        if data is None:
            return None
        return pq.read_metadata(pa.BufferReader(data))

    def _group(self, place: Place, metadata: pq.FileMetaData, codec: Codec) -> _Group | None:
        table = self._columns(place, metadata)
        if table is None:
            return None
        try:
            return _Group(table.column(SEQ_COLUMN), conformed(table.drop_columns([SEQ_COLUMN]), codec.schema))
        except UNREADABLE:
            return None

    def _columns(self, place: Place, metadata: pq.FileMetaData, names: Sequence[str] = ()) -> pa.Table | None:
        """Columns of a row group, all but the log's name where none are named; None where it is damaged."""
        data = self._verified(place)
        if data is None:
            return None
        size = metadata.serialized_size + place.offset + place.size
        try:
            window = _VerifiedBytes(place.offset, data, size)
            with pq.ParquetFile(window, metadata=metadata) as file:
                wanted = list(names) or [name for name in file.schema_arrow.names if name != LOG_COLUMN]
                return file.read_row_group(place.group, columns=wanted, use_threads=False)
        except UNREADABLE:
            return None

    def _verified(self, place: Place) -> bytes | None:
        file = self.disk.open(self.names[place.file])
        try:
            data = read_exactly(file, place.offset, place.size)
        except FileNotFoundError:
            raise
        except OSError:
            return None
        finally:
            file.close()
        return data if len(data) == place.size and crc32(data) == place.crc else None


def _schema(metadata: pq.FileMetaData) -> pa.Schema:
    """Not by `metadata.schema`: the two hold each other, and all of the footer, until Python looks for cycles."""
    with pq.ParquetFile(_VerifiedBytes(0, b"", metadata.serialized_size), metadata=metadata) as file:
        return file.schema_arrow


class _Group(NamedTuple):
    """A row group that was read: its rows, and their numbers."""

    numbers: pa.ChunkedArray
    rows: pa.RecordBatch

    def run(self, entry: IndexEntry) -> pa.RecordBatch:
        """The rows of one of its entries."""
        if entry.rows == self.rows.num_rows:
            return self.rows
        return self.rows.slice(pc.index(self.numbers, entry.first).as_py(), entry.rows)


def share(place: Place, rows: int, of: int) -> int:
    """What so many rows of a row group take of it; never nothing, which would be numbers without rows."""
    return max(1, place.size * rows // of)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """A row group as one batch of exactly `schema`."""
    columns = [pa.concat_arrays(column.chunks) for column in table.columns]
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


class _VerifiedBytes(io.RawIOBase):
    """A file of which only bytes can be read that were verified, at their place in it."""

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


def parquet_names(first: int, last: int, count: int) -> list[str]:
    """The files of a part, in the order of the numbers that places know them by."""
    return [f"{first:012d}-{last:012d}.{number}of{count}.parquet" for number in range(1, count + 1)]


def find_compacted(disk: Disk, names: Sequence[str]) -> list[Compacted]:
    """The compacted parts of a folder, in order. One without its index counts where its segments are gone."""
    parts: dict[tuple[int, int, int], int] = {}
    for name in names:
        if match := PARQUET_NAME.fullmatch(name):
            key = int(match[1]), int(match[2]), int(match[4])
            parts[key] = parts.get(key, 0) + 1
    found: list[Compacted] = []
    for (first, last, count), there in sorted(parts.items()):
        index = f"{first:012d}-{last:012d}.parts"
        segments = any(SEGMENT_NAME.fullmatch(name) and first <= named(name)[0] <= last for name in names)
        if index in names or (there == count and not segments):
            files = parquet_names(first, last, count)
            part = _opened(disk, first, last, files, index) if index in names else None
            found.append(part or rebuilt(disk, first, last, files, names))
    return found


def _opened(disk: Disk, first: int, last: int, names: list[str], index: str) -> Compacted | None:
    try:
        file = disk.open(index)
    except OSError:
        return None
    try:
        start = file.read(0, _TABLE.size)
        if len(start) < _TABLE.size:
            return None
        magic, size, count, crc = _TABLE.unpack(start)
        table = file.read(_TABLE.size, Places.bytes_of(count))
        if magic != _MAGIC or crc32(table, crc32(_TABLE.pack(magic, size, count, 0))) != crc:
            return None
        part = Compacted(disk, first, last, names, Places(table), size)
        sidecar = Index.decode(lambda at, length: file.read(part._sidecar + at, length), size)
        if sidecar is None:
            return None
        part.index = sidecar
        return part
    except (OSError, struct.error):
        return None
    finally:
        file.close()


def rebuilt(disk: Disk, first: int, last: int, names: list[str], listed: Collection[str]) -> Compacted:
    """A compacted part told from its Parquet files alone. One without its seal, or that is not `listed`, is damage."""
    part = Compacted(disk, first, last, names, Places(), 0)
    damage: list[tuple[int, int]] = []
    groups: list[Place] = []
    footers: list[Place] = []
    for number, name in enumerate(names):
        if name not in listed:
            damage.append((0, 0))
            continue
        file = disk.open(name)
        try:
            part.size += file.size()
            *of_file, footer = sealed(file, number)
        except UNREADABLE:
            damage.append((0, file.size()))
        else:
            groups += of_file
            footers.append(footer)
        finally:
            file.close()
    part.places = Places.of([*groups, *footers])
    part.index = part.derived()
    for place in damage:
        part.index.damaged(*place)
    return part


def _derive(index: Index, number: int, place: Place, table: pa.Table, wide: pa.Schema) -> None:
    """Add to `index` what the row group at place `number` says; `ValueError` where it is not as it was written."""
    if [(field.name, field.type) for field in table.schema] != DERIVED:
        raise ValueError("other columns")
    if not table.num_rows or any(column.null_count for column in table.columns):
        raise ValueError("a row without a log, a number or a time")
    name, numbers = table.column(0)[0].as_py(), table.column(1).to_pylist()
    known = index.streams.get(stream_of(name))
    least = known.next if known is not None else 0
    if not all(low < high for low, high in pairwise([least - 1, *numbers, MAX_SEQ])):
        raise ValueError("numbers that do not ascend")
    times = table.column(2).combine_chunks().cast(pa.int64()).to_pylist()
    schema = pa.schema([field for field in wide if field.name not in (LOG_COLUMN, SEQ_COLUMN)], wide.metadata)
    # What was trimmed is not known: what is there was not.
    stream = index.state(LogState(0, numbers[0], name, Codec(schema).message))
    ends = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    for start, end in pairwise([0, *ends, len(numbers)]):
        taken, of_run = share(place, end - start, len(numbers)), times[start:end]
        stream.add(IndexEntry(number, taken, numbers[start], end - start, min(of_run), max(of_run)))
