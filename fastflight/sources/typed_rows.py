"""The typed rows of recordings: each line that a device printed, parsed as its layout says.

The layout is declared in the fleet file, or recognised by the first lines of the recording. What was recognised is
stored, and its types widen to hold later values: a column keeps its name, and values stay exact.

The traffic is what counts. The lines that end in one of its Parquet files are parsed once, soon after a compaction has
made it, and their rows kept in a Parquet file (`typed_parts`), which can be made again at any time. Newer lines are
parsed whenever they are read.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fastflight.errors import FastFlightError, RequestError, UnknownName
from fastflight.gap import Gap, Why
from fastflight.log import NumberedRows, Range, StoredRows
from fastflight.sources.recorded_rows import chunks_of
from fastflight.sources.recording import Readable
from fastflight.sources.row_layout import DECLARE, NO_TABLE, OWN_COLUMNS, Layout, RowLayout
from fastflight.sources.session_lines import LineSplitter, SessionLine
from fastflight.sources.session_rows import CUT, parse_lines, schema_of_lines
from fastflight.sources.typed_parts import PartFolder, TypedPart
from fastflight.tables import LineParser
from fastflight.tables.recognition import Recognised, in_blocks, recognise, recognise_format

# The folder of typed rows, in that of the recordings.
FOLDER = "rows"
# The first lines, by which a layout is recognised. It is stored if they have at least so many bytes.
SAMPLE_BYTES, LEAST_SAMPLE_BYTES = 64 * 1024, 4 * 1024
# If all of them show no table, the newest of them do: a program may be another one than at first.
NEWEST_LINES = 128
# A list of thousands of recordings looks at so many chunks of each, if they show a table.
LISTED_CHUNKS = 4
# How often a reading that waits for another one checks whether its client is still there.
LOOK_SECONDS = 0.2


class _Wanted(Exception):
    """Somebody waits for the recording whose files are being made."""


class PlacedPart(NamedTuple):
    """Typed rows in a file: those with numbers from `low` on."""

    part: TypedPart
    low: int


@dataclass(slots=True)
class TypedTable:
    """The typed rows of a recording: those of `parts`, and then those of `lines`.

    The columns of a part are some of those of the table, and may be narrower. `next_seq`: the number after the traffic
    that was read. `gaps` and `lost` count its missing numbers.
    """

    parser: LineParser
    parts: list[PlacedPart]
    lines: list[SessionLine]
    next_seq: int
    gaps: int
    lost: int

    @property
    def schema(self) -> pa.Schema:
        return schema_of_lines(self.parser)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `lines`."""
        schema = self.schema
        for lines in in_blocks(self.lines, _size):
            yield parse_lines(self.parser, lines, schema)

    def summaries(self) -> list[Mapping[str, Any]]:
        """Return what is to be told of the rows. Complete after `batches`."""
        return [*(placed.part.summary for placed in self.parts), self.parser.summary.as_dict("seq")]


class TypedRows:
    """The typed rows of a server's recordings. `declared` returns the layout in a device's entry, if there is one.

    `listed` returns a recording whose name was just listed; by default `log_of` does. `folder` is that of the
    recordings. Rows and layouts are stored there if `may_write`.
    """

    def __init__(
        self,
        log_of: Callable[[str], Readable],
        declared: Callable[[str], RowLayout | None] = lambda name: None,
        folder: Path | None = None,
        may_write: Callable[[], bool] = lambda: True,
        listed: Callable[[str], Readable] | None = None,
    ) -> None:
        self._log_of = log_of
        self._listed = listed or log_of
        self._declared = declared
        self._folder = folder
        self._may_write = may_write
        self._folders: dict[str, PartFolder] = {}
        self._recognised: dict[str, Recognised] = {}
        # Recordings whose sample is complete, and no table; those whose first lines were one when they were listed.
        self._other: set[str] = set()
        self._tables: set[str] = set()
        # Recordings that somebody waits for.
        self._wanted: set[str] = set()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    @contextlib.contextmanager
    def open(self, name: str, check: Callable[[], object] = lambda: None) -> Iterator[TypedTable]:
        """Read a recording; files that are missing are made. They stay while the context lasts.

        `check` is called now and then, and may raise. `RequestError` if the lines are no table, `UnknownName` if there
        is no such recording.
        """
        log = self._log_of(name)
        with self._locked(name, check):
            folder = self._folder_of(name) if self._may_write() else None
            layout = self._layout(name, log)
            with closing(StoredRows() if folder is None else log.stored()) as stored:
                reading = _Reading(log, stored, folder, layout, check)
                table = reading.run() or reading.run()
            if table is None:  # new lines have widened the types again
                reading = _Reading(log, StoredRows(0), None, reading.layout, check)
                table = reading.run()
                assert table is not None
            # A layout by few lines is recognised anew the next time, by more lines.
            is_settled = bool(table.parts) or name in self._recognised
            if is_settled and isinstance(reading.layout, Recognised) and reading.layout != self._recognised.get(name):
                self._store(name, reading.layout)
            if folder is not None:
                folder.keep([placed.part.file for placed in table.parts])
            yield table

    def prepare(self, name: str, check: Callable[[], object] = lambda: None) -> None:
        """Make the files of a recording that are missing, if its lines are a table. `check` is that of `open`.

        Ends when somebody opens the recording, who then makes the other files.
        """

        def step() -> None:
            if name in self._wanted:
                raise _Wanted
            check()

        with contextlib.suppress(RequestError, UnknownName, _Wanted), self.open(name, step):
            pass

    def parser(self, name: str) -> tuple[LineParser, int | None]:
        """Return a parser for the lines of a recording, and the number before which its types hold all values.

        The number is None for all lines. Errors are those of `open`.
        """
        if (declared := self._declared(name)) is not None:
            return declared.parser(), None
        with self.open(name) as table:
            return table.parser, table.next_seq

    def has_table(self, name: str) -> bool:
        """Whether the lines of a recording that was just listed are a table, as far as its first lines show.

        Once they were, they are not read again: the layout of a short recording is not kept.
        """
        if name not in self._tables:
            with self._locked(name, lambda: None), contextlib.suppress(FastFlightError):
                known = self._known(name)
                if known is not None:
                    known.parser()
                else:
                    log = self._listed(name)
                    few = _first_lines(log, Range(until_seq=log.statistics().first_seq + LISTED_CHUNKS))
                    if recognise_format(_whole(few)) is None:
                        self._layout(name, log)
                self._tables.add(name)
        return name in self._tables

    @contextlib.contextmanager
    def _locked(self, name: str, check: Callable[[], object]) -> Iterator[None]:
        while not self._locks[name].acquire(timeout=LOOK_SECONDS):
            self._wanted.add(name)
            check()
        self._wanted.discard(name)
        try:
            yield
        finally:
            self._locks[name].release()

    def _folder_of(self, name: str) -> PartFolder | None:
        if self._folder is None:
            return None
        return self._folders.setdefault(name, PartFolder(self._folder / FOLDER / name))

    def _layout(self, name: str, log: Readable) -> Layout:
        """Return the layout of a recording. `RequestError` if there is none."""
        if (known := self._known(name)) is not None:
            if isinstance(known, RowLayout):
                known.parser()  # raises for text, before anything is read
            return known
        lines = [] if name in self._other else _first_lines(log, Range())
        size = sum(map(_size, lines))
        whole = _whole(lines)
        found = recognise(whole) or recognise(whole[-NEWEST_LINES:])
        if found is None:
            if size >= SAMPLE_BYTES:
                self._other.add(name)
            raise RequestError(NO_TABLE, where=name, hint=DECLARE)
        if size >= LEAST_SAMPLE_BYTES:
            self._store(name, found)
        return found

    def recognised(self, name: str) -> Recognised | None:
        """Return the layout that was recognised in a recording, if it is stored."""
        known = self._known(name)
        return known if isinstance(known, Recognised) else None

    def _known(self, name: str) -> Layout | None:
        """Return the layout that is declared, or was recognised before."""
        if (declared := self._declared(name)) is not None:
            return declared
        if (known := self._recognised.get(name)) is not None:
            return known
        if (folder := self._folder_of(name)) is not None and (stored := folder.layout()) is not None:
            with contextlib.suppress(RequestError, LookupError, TypeError, ValueError):
                self._recognised[name] = Recognised.from_json(stored)
                return self._recognised[name]
        return None

    def _store(self, name: str, layout: Recognised) -> None:
        self._recognised[name] = layout
        if (folder := self._folder_of(name)) is not None and self._may_write():
            folder.store_layout(layout.as_json())


class _Reading:
    """Reads one recording. `run` returns its typed rows; None if a file was too narrow: then call it again."""

    def __init__(
        self,
        log: Readable,
        stored: StoredRows,
        folder: PartFolder | None,
        layout: Layout,
        check: Callable[[], object],
    ) -> None:
        self.layout = layout
        self._log = log
        self._stored = stored
        self._folder = folder
        self._check = check
        # Files of traffic whose rows have types that do not hold all values of the recording.
        self._narrow: set[Path] = set()

    def run(self) -> TypedTable | None:
        parts: list[PlacedPart] = []
        following: int | None = None
        unfinished: SessionLine | None = None
        low = 0
        for file, (first, last) in zip(self._stored.files, self._stored.spans, strict=True):
            self._check()
            if first != following:  # no line of the traffic before goes on here
                low = first
            part = self._part(file, Range(first if following is None else following, last), unfinished)
            if part is None:
                break
            parts.append(PlacedPart(part, low))
            following, unfinished = last + 1, part.unfinished
        lines = _Lines(unfinished)
        tail = list(lines.read(self._log, Range(following), self._check))
        self._learn(tail)
        parser = self.layout.parser(OWN_COLUMNS)
        too_narrow = {
            file
            for file, placed in zip(self._stored.files, parts, strict=False)
            if not _are_columns_of(placed.part.schema, parser.schema)
        }
        if too_narrow:
            self._narrow |= too_narrow
            return None
        missing = [each for each in lines.missing if each.first >= self._stored.end]
        gaps, lost = len(missing), sum(each.rows or 0 for each in missing)
        return TypedTable(
            parser, parts, tail, lines.next_seq or following or 0, self._stored.gaps + gaps, self._stored.lost + lost
        )

    def _part(self, file: Path, wanted: Range, began: SessionLine | None) -> TypedPart | None:
        """Return the rows of a file of traffic, which are made if they are missing; None if they cannot be stored."""
        assert self._folder is not None
        key = {name: value for name, value in self.layout.as_json().items() if name != "kinds"}
        found = None if file in self._narrow else self._folder.find(file, key, began)
        if found is not None:
            return found
        lines = _Lines(began)
        ended = list(lines.read(self._log, wanted, self._check))
        self._learn(ended)
        parser = self.layout.parser(OWN_COLUMNS)
        schema = schema_of_lines(parser)
        rows = pa.Table.from_batches((parse_lines(parser, some, schema) for some in in_blocks(ended, _size)), schema)
        # A column without values gets its type later.
        held = [field.name for field in rows.schema if not pa.types.is_null(field.type)]
        self._narrow.discard(file)
        return self._folder.store(
            file, key, lines.began, lines.unfinished, rows.select(held), parser.summary.as_dict("seq")
        )

    def _learn(self, lines: Iterable[SessionLine]) -> None:
        self.layout = self.layout.learn(line.data for line in lines if not line.cut)


class _Lines:
    """The lines in a range of a log. `began` is the line that goes on in it, by default one of unknown beginning."""

    def __init__(self, began: SessionLine | None = None) -> None:
        self._splitter = LineSplitter(False, began)
        self.began = self._splitter.unfinished
        self.missing: list[Gap] = []
        # The number after the last one that was read.
        self.next_seq: int | None = None

    @property
    def unfinished(self) -> SessionLine:
        """The line that goes on after the range."""
        return self._splitter.unfinished

    def read(self, log: Readable, wanted: Range, check: Callable[[], object]) -> Iterator[SessionLine]:
        """Yield the lines that end in the range."""
        with closing(log.read(wanted)) as items:
            for item in items:
                check()
                self.next_seq = item.last + 1
                if isinstance(item, NumberedRows):
                    for chunk in chunks_of(item):
                        if chunk.cut:
                            yield from self._splitter.end(chunk.cut)
                        yield from self._splitter.feed(chunk)
                elif item.why != Why.UNUSED:  # after unused numbers, the next row says whether it begins a line
                    self.missing.append(item)
                    yield from self._splitter.end(CUT)


def _first_lines(log: Readable, wanted: Range) -> list[SessionLine]:
    """Return the first lines in a range of a recording, `SAMPLE_BYTES` or more if there are as many."""
    found: list[SessionLine] = []
    size = 0
    for line in _Lines().read(log, wanted, lambda: None):
        found.append(line)
        size += _size(line)
        if size >= SAMPLE_BYTES:
            break
    return found


def _whole(lines: Iterable[SessionLine]) -> list[bytes]:
    return [line.data for line in lines if not line.cut]


def _are_columns_of(part: pa.Schema, whole: pa.Schema) -> bool:
    """Whether SQL makes the columns of `whole` of those of a part without changing a value."""
    for field in part:
        if field.name not in OWN_COLUMNS and whole.get_field_index(field.name) < 0:
            return False
        if field.name not in OWN_COLUMNS and field.type != (wide := whole.field(field.name).type):
            if (field.type, wide) != (pa.int64(), pa.float64()):
                return False
    return True


def _size(line: SessionLine) -> int:
    return len(line.data)
