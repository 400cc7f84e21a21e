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
from fastflight.log.compacted import LOG_COLUMN, SEQ_COLUMN, Compacted, parquet_names, share
from fastflight.log.content import Codec, LogState
from fastflight.log.disk import Disk, File, failure, write_all, write_new
from fastflight.log.index import BEGINNING, END_OF_TIME, Entries, IndexEntry
from fastflight.log.places import Place, Places, seal
from fastflight.log.reading import StorePart
from fastflight.log.segment import Read, Segment
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


class _Unfit(Exception):
    """A segment that cannot be compacted."""

    def __init__(self, segment: StorePart) -> None:
        super().__init__(segment.name)
        self.segment = segment


def compact(store: Store, turn: Callable[[], object] = lambda: None) -> list[str]:
    """Compact the closed segments, and return the names of the new parts.

    Other threads can append and read meanwhile. `turn` is called after each batch that is read. It may sleep, to leave
    time to other work. If it raises, the exception ends the compaction, and the segments that are not replaced yet
    stay. Raises `StorageError` if the disk fails, and `Stopped` if the store is closed.
    """

    def turn_if_open() -> None:
        store.check()
        turn()

    with store.maintenance_lock:
        store.check()
        return _compact(store, turn_if_open)


def _compact(store: Store, turn: Callable[[], object]) -> list[str]:
    made: list[str] = []
    unfit: set[str] = set()
    while run := _run(store.closed_segments(), unfit):
        try:
            part = _Compaction(store, run, turn).part()
        except _Unfit as found:
            unfit.add(found.segment.name)
        except OSError as error:
            raise failure(error, "compacting") from error
        else:
            store.replace(run, part)
            made.append(part.name)
    return made


def _run(segments: Sequence[Segment], unfit: set[str]) -> list[Segment]:
    """Return the first consecutive segments that can be compacted together."""
    run: list[Segment] = []
    for segment in segments:
        fit = segment.name not in unfit and not segment.index.damage
        following = not run or segment.ordinal == run[-1].ordinal + 1
        if fit and following and len(run) < MAX_SEGMENTS:
            run.append(segment)
        elif run:
            break
    return run


class _Written(NamedTuple):
    """A Parquet file: the entries of its logs by stream, its places, and its size.

    The offset of an entry is the number of its row group in the file.
    """

    located: dict[int, Entries]
    places: list[Place]
    size: int


class _Compaction:
    """Rewrites one run of segments as Parquet."""

    def __init__(self, store: Store, run: Sequence[Segment], turn: Callable[[], object]) -> None:
        self._run = run
        self._turn = turn
        self._disk: Disk = run[0].disk
        self._firsts: dict[int, int] = {}
        # The logs of each schema: each schema becomes one file.
        self._files: dict[bytes, list[tuple[LogState, Codec]]] = {}
        for number in sorted({number for segment in run for number in segment.index.streams}):
            state = next((s.state for part in run if (s := part.index.streams.get(number)) and s.state.name), None)
            if state is None:
                raise _Unfit(next(part for part in run if number in part.index.streams))
            self._firsts[number] = max(store.snapshot(number).first, 0)
            codec = store.log(state.name).codec
            self._files.setdefault(codec.message, []).append((state, codec))

    def part(self) -> Compacted:
        """Write the Parquet files, verify them, write their index file, and return the new part."""
        first, last = self._run[0].ordinal, self._run[-1].ordinal
        names = parquet_names(first, last, len(self._files))
        part = Compacted(self._disk, first, last, names, Places(), 0)
        part.index.salt, part.index.created = 0, self._run[0].index.created
        try:
            files = enumerate(zip(names, self._files.values(), strict=True))
            written = [self._write(number, name, logs) for number, (name, logs) in files]
            self._describe(part, written)
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

    def _write(self, number: int, name: str, logs: Sequence[tuple[LogState, Codec]]) -> _Written:
        """Write Parquet file `number` of the part."""
        with suppress(FileNotFoundError):
            self._disk.remove(name)
        file = self._disk.create(name)
        try:
            located = self._write_rows(file, logs)
            places = seal(file, number)
            file.sync()
            return _Written(located, places, file.size())
        except (DataError, pa.ArrowNotImplementedError):  # a type that Parquet does not support
            raise _Unfit(self._run[0]) from None
        finally:
            file.close()

    def _write_rows(self, file: File, logs: Sequence[tuple[LogState, Codec]]) -> dict[int, Entries]:
        """Write the rows of logs of one schema. Return their entries by stream, as in `_Written`."""
        schema = logs[0][1].schema
        wide = pa.schema(
            [pa.field(LOG_COLUMN, pa.string()), pa.field(SEQ_COLUMN, pa.uint64()), *schema], schema.metadata
        )
        located = {state.stream: Entries() for state, _ in logs}
        sink = ByteSink()
        # Page checksums are for other tools: this project uses the seal's checksums of whole row groups.
        options = {"compression": "zstd", "write_page_checksum": True}
        with closing(RowGroupWriter(sink, wide, max_rows=GROUP_ROWS, **options)) as writer:
            for state, codec in logs:
                for entry, batch in self._runs(state.stream, codec):
                    if batch is not None:
                        group = writer.write(_add_log_columns(batch, wide, state.name, entry.first))
                        entry = entry._replace(offset=group)
                        write_all(file, [sink.take()])
                    located[state.stream].add(entry)
                    del batch  # free it before the next one is read
                writer.end_row_group()
        write_all(file, [sink.take()])
        return located

    def _runs(self, number: int, codec: Codec) -> Iterator[Run]:
        """Yield a log's rows in runs without a hole, and the numbers that were never written."""
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
        """Yield a log's rows that are not trimmed, at most `GROUP_ROWS` each; None for numbers never written."""
        start = self._firsts[number]
        for segment in self._run:
            entries = segment.entries(number)
            if entries is None:
                continue
            with closing(segment.read_joined(entries, entries.after(start), len(entries), number, codec)) as reads:
                for entry, batch, reason in reads:
                    self._turn()
                    if reason:
                        raise _Unfit(segment)
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

    def _describe(self, part: Compacted, written: Sequence[_Written]) -> None:
        """Fill in the part's places and its index from the files that were written."""
        for logs in self._files.values():
            for state, _ in logs:
                shares = [s for segment in self._run if (s := segment.index.streams.get(state.stream)) is not None]
                first = self._firsts[state.stream]
                begin, next_ = max(shares[0].begin, first), max(max(s.next for s in shares), first)
                stream = part.index.set_state(
                    shares[-1].state._replace(name=state.name, schema=state.schema, first=first)
                )
                stream.begin, stream.next = begin, next_
        groups: list[Place] = []
        footers: list[Place] = []
        for located, (*places, footer), file_size in written:
            part.size += file_size
            footers.append(footer)
            rows: Counter[int] = Counter()
            for entries in located.values():
                for entry in entries:
                    rows[entry.offset] += entry.rows if entry.size else 0
            for stream_number, entries in located.items():
                stream = part.index.streams[stream_number]
                end = stream.next
                for entry in entries:
                    if entry.size:
                        size = share(places[entry.offset], entry.rows, rows[entry.offset])
                        entry = entry._replace(offset=len(groups) + entry.offset, size=size)
                    stream.add(entry)
                stream.next = max(end, stream.next)
            groups += places
        part.places = Places.of([*groups, *footers])

    def _verify(self, part: Compacted, state: LogState, codec: Codec) -> None:
        """Compare the rows in the files with those in the segments. Raises `StorageError` if they differ."""
        entries = part.entries(state.stream)
        assert entries is not None
        reads = part.read(entries, 0, len(entries), state.stream, codec)
        for entry, batch in self._runs(state.stream, codec):
            at, copy, reason = next(reads, Read(entry, None, "too few rows"))
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
