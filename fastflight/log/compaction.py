"""Compaction: rewrites closed segments as Parquet, which is smaller, sorted by log, and readable by other tools.

Reading a log returns the same rows before and after. Damaged segments are not compacted, because their readable rows
are only in them. Compaction writes and syncs the Parquet files, and compares them with the segments. Then it writes
their index file, which makes the new part valid, and only then removes the segments. If it stops at any point before,
the files are leftovers, which the next writer that opens the folder removes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from fastflight.errors import DataError, StorageError
from fastflight.log.compacted import LOG_COLUMN, SEQ_COLUMN, Compacted, parquet_names, stored_bytes
from fastflight.log.content import Codec, LogState
from fastflight.log.disk import Disk, File, failure, write_all, write_new
from fastflight.log.index import BEGINNING, END_OF_TIME, Entries, IndexEntry
from fastflight.log.reading import StorePart
from fastflight.log.sections import Section, Sections, seal
from fastflight.log.segment import ReadResult, Segment
from fastflight.log.store import Store
from fastflight.tables.arrow import ByteSink
from fastflight.tables.parquet import ROW_GROUP_BYTES, RowGroupWriter

# The most segments in one part: enough that a slow board gets many rows in it.
MAX_SEGMENTS = 16
# A row group is always read whole, so it has few enough rows that a small range is cheap to read. Runs share a row
# group, because each row group costs a reader 6 kB of memory when it opens the file.
GROUP_ROWS = 64 * 1024

# Rows whose numbers have no hole; None instead of a batch for numbers that were never written.
Run: TypeAlias = tuple[IndexEntry, pa.RecordBatch | None]


class _NotCompactable(Exception):
    """`segment` cannot be compacted, because it is damaged or has a type that Parquet does not support."""

    def __init__(self, segment: StorePart) -> None:
        super().__init__(segment.name)
        self.segment = segment


def compact(store: Store, on_batch: Callable[[], object] = lambda: None) -> list[str]:
    """Compact the closed segments, and return the names of the new parts.

    Other threads can append and read meanwhile. `on_batch` is called after each batch that is read. It may sleep, to
    leave time to other work. If it raises, the exception ends the compaction, and the segments that are not replaced
    yet stay. Raises `StorageError` if the disk fails, and `Stopped` if the store is closed.
    """

    def after_batch() -> None:
        store.check()
        on_batch()

    with store.maintenance_lock:
        store.check()
        return _compact(store, after_batch)


def compact_whole(store: Store, on_batch: Callable[[], object] = lambda: None) -> Compacted:
    """Return all rows of a store that has segments only, and that nobody writes to, as one part. Its segments stay.

    Raises `StorageError` if the disk fails, or a segment cannot be compacted.
    """
    try:
        return _Compaction(store, store.segments(), on_batch).run()
    except _NotCompactable as error:
        raise StorageError(
            "damaged, or of a type that Parquet does not support",
            where=error.segment.name,
            hint="Its rows stay as they are",
        ) from None
    except OSError as error:
        raise failure(error, "compacting") from error


def _compact(store: Store, on_batch: Callable[[], object]) -> list[str]:
    made: list[str] = []
    skipped: set[str] = set()
    while segments := _next_segments(store.closed_segments(), skipped):
        try:
            part = _Compaction(store, segments, on_batch).run()
        except _NotCompactable as error:
            skipped.add(error.segment.name)
        except OSError as error:
            raise failure(error, "compacting") from error
        else:
            store.replace(segments, part)
            made.append(part.name)
    return made


def _next_segments(closed: Sequence[Segment], skipped: set[str]) -> list[Segment]:
    """Return the first consecutive segments that can be compacted together."""
    segments: list[Segment] = []
    for segment in closed:
        compactable = segment.name not in skipped and not segment.index.damage
        consecutive = not segments or segment.ordinal == segments[-1].ordinal + 1
        if compactable and consecutive and len(segments) < MAX_SEGMENTS:
            segments.append(segment)
        elif segments:
            break
    return segments


class _WrittenFile(NamedTuple):
    """A Parquet file: the entries of its logs by number, its sections, and its size.

    The offset of an entry is the number of its row group in the file.
    """

    entries_by_log: dict[int, Entries]
    sections: list[Section]
    size: int


class _Compaction:
    """Rewrites consecutive segments as one compacted part."""

    def __init__(self, store: Store, segments: Sequence[Segment], on_batch: Callable[[], object]) -> None:
        self._segments = segments
        self._on_batch = on_batch
        self._disk: Disk = segments[0].disk
        self._firsts: dict[int, int] = {}
        # The logs of each schema: each schema becomes one file.
        self._files: dict[bytes, list[tuple[LogState, Codec]]] = {}
        for number in sorted({number for segment in segments for number in segment.index.logs}):
            state = next((s.state for part in segments if (s := part.index.logs.get(number)) and s.state.name), None)
            if state is None:
                raise _NotCompactable(next(part for part in segments if number in part.index.logs))
            self._firsts[number] = max(store.snapshot(number).first, 0)
            codec = store.log(state.name).codec
            self._files.setdefault(codec.message, []).append((state, codec))

    def run(self) -> Compacted:
        """Write the Parquet files, verify them, write their index file, and return the new part."""
        first, last = self._segments[0].ordinal, self._segments[-1].ordinal
        names = parquet_names(first, last, len(self._files))
        part = Compacted(self._disk, first, last, names, Sections(), 0)
        part.index.salt, part.index.created = 0, self._segments[0].index.created
        try:
            files = enumerate(zip(names, self._files.values(), strict=True))
            written = [self._write(number, name, logs) for number, (name, logs) in files]
            self._fill_index(part, written)
            for logs in self._files.values():
                for state, codec in logs:
                    self._verify(part, state, codec)
            write_new(self._disk, part.name, list(part.encode()))
            part.index.release()
        except BaseException:
            for name in names:
                with suppress(OSError):
                    self._disk.remove(name)
            raise
        return part

    def _write(self, number: int, name: str, logs: Sequence[tuple[LogState, Codec]]) -> _WrittenFile:
        """Write Parquet file `number` of the part, under `name`, with the rows of `logs`, which have one schema.

        Raises `_NotCompactable` for a type that Parquet does not support.
        """
        with suppress(FileNotFoundError):
            self._disk.remove(name)
        file = self._disk.create(name)
        try:
            entries_by_log = self._write_rows(file, logs)
            sections = seal(file, number)
            file.sync()
            return _WrittenFile(entries_by_log, sections, file.size())
        except (DataError, pa.ArrowNotImplementedError):  # a type that Parquet does not support
            raise _NotCompactable(self._segments[0]) from None
        finally:
            file.close()

    def _write_rows(self, file: File, logs: Sequence[tuple[LogState, Codec]]) -> dict[int, Entries]:
        """Write the rows of logs of one schema. Return their entries, as in `_WrittenFile`."""
        schema = logs[0][1].schema
        wide = pa.schema(
            [pa.field(LOG_COLUMN, pa.string()), pa.field(SEQ_COLUMN, pa.uint64()), *schema], schema.metadata
        )
        entries_by_log = {state.number: Entries() for state, _ in logs}
        sink = ByteSink()
        # Page checksums are for other tools: this project uses the seal's checksums of whole row groups.
        options = {"compression": "zstd", "write_page_checksum": True}
        with closing(RowGroupWriter(sink, wide, max_rows=GROUP_ROWS, **options)) as writer:
            for state, codec in logs:
                for entry, batch in self._runs(state.number, codec):
                    if batch is not None:
                        group = writer.write(_add_log_columns(batch, wide, state.name, entry.first))
                        entry = entry._replace(offset=group)
                        write_all(file, [sink.take()])
                    entries_by_log[state.number].add(entry)
                    del batch  # free it before the next one is read
                writer.end_row_group()
        write_all(file, [sink.take()])
        return entries_by_log

    def _runs(self, number: int, codec: Codec) -> Iterator[Run]:
        """Yield a log's rows in runs without a hole, each as one batch; None for numbers that were never written."""
        waiting: list[pa.RecordBatch] = []
        lot = IndexEntry(0, 0, 0, 0, END_OF_TIME, BEGINNING)
        size = 0
        for piece, batch in self._pieces(number, codec):
            apart = batch is None or piece.first != lot.first + lot.rows
            if waiting and (apart or lot.rows + piece.rows > GROUP_ROWS or size >= ROW_GROUP_BYTES):
                yield lot, _concat_and_clear(waiting)
                size = 0
            if batch is None:
                yield piece, None
                continue
            if waiting:
                times = min(lot.first_time, piece.first_time), max(lot.last_time, piece.last_time)
                lot = IndexEntry(0, 1, lot.first, lot.rows + piece.rows, *times)
            else:
                lot = piece
            waiting.append(batch)
            size += piece.size
        if waiting:
            yield lot, _concat_and_clear(waiting)

    def _pieces(self, number: int, codec: Codec) -> Iterator[Run]:
        """Yield a log's rows that are not trimmed, in batches of at most `GROUP_ROWS` rows.

        For numbers that were never written, yield their entry with None. Raises `_NotCompactable` for damaged rows.
        """
        start = self._firsts[number]
        for segment in self._segments:
            entries = segment.entries(number)
            if entries is None:
                continue
            with closing(segment.read_joined(entries, entries.index_from(start), len(entries), number, codec)) as reads:
                for entry, batch, reason in reads:
                    self._on_batch()
                    if reason:
                        raise _NotCompactable(segment)
                    first = max(entry.first, start)
                    if batch is None:
                        yield entry._replace(first=first, rows=entry.last + 1 - first), None
                    elif first == entry.first and entry.rows <= GROUP_ROWS:
                        yield entry, batch
                    else:
                        for at in range(first, entry.last + 1, GROUP_ROWS):
                            rows = min(GROUP_ROWS, entry.last + 1 - at)
                            piece = batch.slice(at - entry.first, rows)
                            size = entry.size * rows // entry.rows + 1
                            yield IndexEntry(0, size, at, rows, *codec.times(piece)), piece

    def _fill_index(self, part: Compacted, written: Sequence[_WrittenFile]) -> None:
        """Fill in the part's sections and its index from the files that were written."""
        for logs in self._files.values():
            for state, _ in logs:
                indexes = [each for segment in self._segments if (each := segment.index.logs.get(state.number))]
                first = self._firsts[state.number]
                begin, next_ = max(indexes[0].begin, first), max(max(each.next for each in indexes), first)
                log_index = part.index.set_state(
                    indexes[-1].state._replace(name=state.name, schema=state.schema, first=first)
                )
                log_index.begin, log_index.next = begin, next_
        groups: list[Section] = []
        footers: list[Section] = []
        for entries_by_log, (*sections, footer), file_size in written:
            part.size += file_size
            footers.append(footer)
            rows: Counter[int] = Counter()
            for entries in entries_by_log.values():
                for entry in entries:
                    rows[entry.offset] += entry.rows if entry.size else 0
            for number, entries in entries_by_log.items():
                log_index = part.index.logs[number]
                end = log_index.next
                for entry in entries:
                    if entry.size:
                        size = stored_bytes(sections[entry.offset], entry.rows, rows[entry.offset])
                        entry = entry._replace(offset=len(groups) + entry.offset, size=size)
                    log_index.add(entry)
                log_index.next = max(end, log_index.next)
            groups += sections
        part.sections = Sections.of([*groups, *footers])

    def _verify(self, part: Compacted, state: LogState, codec: Codec) -> None:
        """Compare the rows in the files with those in the segments. Raises `StorageError` if they differ."""
        entries = part.entries(state.number)
        assert entries is not None
        reads = part.read(entries, 0, len(entries), state.number, codec)
        for entry, batch in self._runs(state.number, codec):
            at, copy, reason = next(reads, ReadResult(entry, None, "too few rows"))
            same = batch is copy if batch is None or copy is None else _equal(batch, copy)
            if reason or not same or (entry.first, entry.rows) != (at.first, at.rows):
                raise _verification_error(state, entry, reason or "other values")
            del batch, copy  # free them before the next ones are read
        if (more := next(reads, None)) is not None:
            raise _verification_error(state, more.entry, "too many rows")


def _verification_error(state: LogState, entry: IndexEntry, why: str) -> StorageError:
    return StorageError(
        f"rows {entry.first} to {entry.last} came back changed from Parquet: {why}",
        where=state.name,
        hint="The segments were kept",
    )


def _concat_and_clear(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all `batches` as one, and clear the list, so that it keeps no copy in memory. One batch is not copied."""
    taken, batches[:] = tuple(batches), ()
    return taken[0] if len(taken) == 1 else pa.concat_batches(taken)


def _add_log_columns(batch: pa.RecordBatch, schema: pa.Schema, name: str, first: int) -> pa.RecordBatch:
    names = pa.repeat(pa.scalar(name), batch.num_rows)
    numbers = pa.array(range(first, first + batch.num_rows), pa.uint64())
    return pa.RecordBatch.from_arrays([names, numbers, *batch.columns], schema=schema)


def _equal(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Return whether two batches have the same values. Unlike `equals`, this takes NaN as equal to NaN."""
    return bool(one.equals(other)) or repr(one.to_pylist()) == repr(other.to_pylist())
