"""Reads CSV and JSON lines. Both formats share these readers; each has its own `Grammar`.

A `TextFile` reads a complete file twice: all of its bytes decide the types of the columns, then it yields the rows. A
`TextReader` yields the rows as they arrive, with the types of a schema or of the first `SAMPLE_BYTES`: a cell that does
not fit becomes null and is counted. How the bytes arrive changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.tables.codec import Layout
from fastflight.tables.csv import CsvGrammar
from fastflight.tables.dialect import (
    DELIMITERS,
    HEADER_LINES,
    LINES_BEFORE_HEADER,
    Dialect,
    require_names,
    sniff,
    sniff_line,
)
from fastflight.tables.jsonl import JsonGrammar
from fastflight.tables.rows import BLOCK_BYTES, MAX_ROW_BYTES, RowBlock, RowSplitter
from fastflight.tables.shapes import Shape
from fastflight.tables.summary import ReadSummary, RejectedRow
from fastflight.tables.text_schema import readable_schema
from fastflight.tables.transcoding import Transcoder, is_utf8
from fastflight.tables.widening import can_widen, widen

# The first part of a file, from which the dialect is found, and the types if the request wants no more: some pages of
# text, or some minutes of telemetry. It is held in memory.
SAMPLE_BYTES = 64 * 1024
# The least part that shows a dialect and types; a third of a second at 115200 baud.
LEAST_SAMPLE_BYTES = 4 * 1024
# Blocks of a file that is read whole: pyarrow is fastest at this size.
WHOLE_BLOCK_BYTES = 1024 * 1024
# Rows that are held in memory between finding their types and sending them: a larger file is read twice.
DECODED_BYTES = 16 * 1024 * 1024
# The encoding of files that are not UTF-8 and look like text of Western Europe.
WESTERN = "cp1252"


# Rows of known types, or as text.
Learned: TypeAlias = pa.RecordBatch | RowBlock


class Grammar(Protocol):
    """Turns the rows of one text format into columns."""

    def splitter(self, marks: int = 0, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        """Return a splitter for the file from the first row of data on. `marks`: bytes of byte order marks before."""

    def rows(self, data: bytes) -> Iterator[bytes]:
        """Split whole rows. Joined, they are `data`, with a line feed at its end."""

    def learn(self, block: RowBlock, summary: ReadSummary) -> tuple[int, list[Learned]]:
        """Take whole rows into account for the types of the columns, and reject bad ones.

        Returns the number of rows, and the rows: with the types of the columns so far, or as text.
        """

    def learned(self) -> None:
        """Set the schema, of the rows so far."""

    def shapes(self) -> Mapping[str, Shape]:
        """Return the columns of the rows so far, and what their values are."""

    @property
    def schema(self) -> pa.Schema | None:
        """Known from the start, or after `learned`."""

    def read(self, block: RowBlock, summary: ReadSummary) -> list[pa.RecordBatch]:
        """Read whole rows. Reject bad ones, and count cells that do not fit."""


class _Opening:
    """Takes the text of a file until its dialect is known: then it has a `grammar`, and a `sample` of the file."""

    def __init__(self, layout: Layout, summary: ReadSummary) -> None:
        self._layout = layout
        self._summary = summary
        self._names = None if layout.schema is None else list(layout.schema)
        self.encoding = layout.text.encoding
        self._transcoder = Transcoder(self.encoding)
        self._head = b""
        # Where the next line to look at begins, its number, and the first line that was none of the table.
        self._line, self._number, self._before = 0, 0, 0
        # The first and the last line before the header that was not found yet.
        self._first = self._last = ""
        self.sample = b""
        self.grammar: Grammar | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the text of the rows, once the grammar is known; nothing before."""
        return self._take(self._transcoder.feed(data), ended=False)

    def finish(self) -> bytes:
        return self._take(self._transcoder.finish(), ended=True)

    def splitter(self, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        """Return a splitter for the rows of the file."""
        assert self.grammar is not None
        return self.grammar.splitter(self._transcoder.marks, block_bytes)

    def _take(self, text: bytes, *, ended: bool) -> bytes:
        if self.grammar is not None:
            return text
        self._head += text
        if self._names is None:
            start = self._open_by_sample(ended=ended)
        elif self._layout.format == "jsonl":
            start = self._open_json(ended=ended)
        else:
            start = self._open_by_names(self._names, ended=ended)
        if start is None:
            return b""
        self.sample = self.sample[start:]
        head, self._head = self._head[start:], b""
        return head

    def _open_by_sample(self, *, ended: bool) -> int | None:
        head = self._head
        size = self._sample_bytes()
        if not ended and len(head) < size:
            return None
        end = len(head) if ended and len(head) <= size else head.rfind(b"\n", 0, size) + 1
        if not end:  # the first row is longer than the sample
            end = head.find(b"\n", 0, MAX_ROW_BYTES + 1) + 1
            if not end and not ended and len(head) <= MAX_ROW_BYTES:
                return None
        self.sample = head[:end] if end else head
        if self._layout.format == "jsonl":
            return self._open_json(ended=True)
        if self._is_long(end):
            raise _no_header()
        if not self._transcoder.is_known and _is_western(self.sample):
            self._read_as_western()
            self.sample = self.sample.decode(WESTERN, "surrogateescape").encode(errors="surrogateescape")
        return self._open_csv(sniff(self.sample, self._layout.text))

    def _sample_bytes(self) -> int:
        """Return the size of the sample: as much as the rows that are wanted take, with their header."""
        wanted = self._layout.sample_rows
        if wanted is None or self._head.count(b"\n", 0, SAMPLE_BYTES) < (wanted := wanted + HEADER_LINES):
            return SAMPLE_BYTES
        end = 0
        for _ in range(wanted):
            end = self._head.find(b"\n", end) + 1
        if end < LEAST_SAMPLE_BYTES:
            end = self._head.find(b"\n", LEAST_SAMPLE_BYTES - 1) + 1 or SAMPLE_BYTES
        return min(end, SAMPLE_BYTES)

    def _open_json(self, *, ended: bool) -> int | None:
        start = 0
        for _ in range(self._layout.text.skip_rows):
            end = self._head.find(b"\n", start) + 1
            if not end and not ended:
                return None
            start = end or len(self._head)
        self.grammar = JsonGrammar(self._layout, start)
        return start

    def _open_csv(self, dialect: Dialect) -> int:
        for note in dialect.notes:
            self._summary.note(note)
        self.grammar = CsvGrammar(self._layout, dialect)
        return dialect.start

    def _open_by_names(self, names: list[str], *, ended: bool) -> int | None:
        """Look at one line after the other until one shows where the columns are, so that no row has to wait."""
        options = self._layout.text
        comment = options.comment or "#"
        while (end := self._head.find(b"\n", self._line) + 1) or (ended and self._line < len(self._head)):
            end = end or len(self._head)
            line = self._head[self._line : end]
            if not self._transcoder.is_known and self._head[: self._line].isascii() and _is_western(line):
                self._read_as_western()
                continue
            self._number += 1
            text = line.decode(errors="replace").rstrip("\r\n")
            if self._number > options.skip_rows and text.strip() and not text.startswith(comment):
                dialect = sniff_line(text, self._number, options, names)
                if dialect is not None:
                    if not dialect.headers and options.header == "auto":
                        self._require_no_header(dialect, names)
                    start = end if dialect.headers else self._line
                    comment_of = options.comment or (comment if self._before else None)
                    skipped = [f"{self._before} lines before the header skipped"] if self._before else []
                    notes = (*dialect.notes, *skipped)
                    return self._open_csv(replace(dialect, start=start, comment=comment_of, notes=notes))
                self._first = self._first or text
                self._last = text
            self._before += bool(text.strip()) and self._number > options.skip_rows
            self._line = end
            if self._before > LINES_BEFORE_HEADER:
                break
        else:
            if self._is_long(end):
                raise _no_header()
            if not ended:
                return None
        if self._first:
            delimiter = options.delimiter or next((each for each in DELIMITERS if each in self._first), ",")
            require_names(replace(Dialect(delimiter), names=tuple(Dialect(delimiter).texts(self._first))), names)
        return self._open_csv(Dialect(names=tuple(names), start=len(self._head)))

    def _require_no_header(self, dialect: Dialect, names: Sequence[str]) -> None:
        """Raise `DataError` if the line before the first row can be its header: it has other names than the schema."""
        cells = dialect.texts(self._last) if self._last else []
        if len(cells) == len(names):
            require_names(replace(dialect, names=tuple(cells)), names)

    def _is_long(self, end: int) -> bool:
        """Whether the line that is looked at is too long to be a header."""
        return not end and len(self._head) - self._line > MAX_ROW_BYTES

    def _read_as_western(self) -> None:
        self.encoding = WESTERN
        self._head = self._transcoder.read_as(WESTERN, self._head)
        self._summary.note(f"the file is not UTF-8: it was read as {WESTERN}")


def _no_header() -> DataError:
    return DataError("the first row is too long or not closed", where="byte 0", hint="Start with a header line")


def _is_western(text: bytes) -> bool:
    """Whether text is in an encoding of Western Europe for sure.

    Then it is not UTF-8 anywhere, holds letters and signs of that encoding only, in its first lines or in several.
    """
    lines = [line for line in text.splitlines(keepends=True) if not line.isascii() and line.endswith((b"\n", b"\r"))]
    if not lines or any(_NOT_WESTERN.search(line) or is_utf8(line) for line in lines):
        return False
    return len(lines) > 2 or any(not line.isascii() for line in text.splitlines()[:HEADER_LINES])


_NOT_WESTERN = re.compile(rb"[\x80-\x9f\xfe\xff]")


class TextReader:
    """`RowReader` of csv and jsonl: with a schema, or with the types of the first `SAMPLE_BYTES`."""

    def __init__(self, layout: Layout) -> None:
        self.summary = ReadSummary(layout.on_error)
        self._opening = _Opening(layout, self.summary)
        self._splitter: RowSplitter | None = None
        self._schema = None if layout.schema is None else readable_schema(layout)
        self._last = b""

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        return self._read(self._opening.feed(data), ended=False)

    def finish(self) -> list[pa.RecordBatch]:
        batches = self._read(self._opening.finish(), ended=True)
        assert self._splitter is not None
        batches += self._read_rows(self._splitter.finish())
        _note_end(self._last, self._opening.grammar, self.summary)
        return batches

    def _read(self, text: bytes, *, ended: bool) -> list[pa.RecordBatch]:
        grammar = self._opening.grammar
        if grammar is None:
            return []
        if self._splitter is None:
            self._splitter = self._opening.splitter()
            if self._schema is None:
                self._learn(grammar, ended=ended)
        return self._read_rows(self._splitter.feed(text))

    def _learn(self, grammar: Grammar, *, ended: bool) -> None:
        """Find the types of the columns in the sample."""
        unseen = ReadSummary()
        splitter = grammar.splitter()
        for item in (*splitter.feed(self._opening.sample), *splitter.finish()):
            if isinstance(item, RowBlock):
                grammar.learn(item, unseen)
        self._opening.sample = b""
        grammar.learned()
        self._schema = grammar.schema
        if not ended and self._schema is not None and not self._schema.names:
            # With a schema without columns, all rows would be dropped silently, including good ones that follow.
            raise DataError(
                "none of the first rows can be read, so the columns are not known",
                where="byte 0",
                hint="Name the columns in a schema, or try format raw",
            )

    def _read_rows(self, found: list[RowBlock | RejectedRow]) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for item in found:
            if isinstance(item, RejectedRow):
                self.summary.reject(item.offset, item.reason)
                continue
            self._last = item.data[-2:]
            batches += self._read_block(item)
        self.summary.rows += sum(batch.num_rows for batch in batches)
        return batches

    def _read_block(self, block: RowBlock) -> list[pa.RecordBatch]:
        grammar = self._opening.grammar
        assert grammar is not None
        try:
            return grammar.read(block, self.summary)
        except DataError:
            offset = block.offset
            for row in grammar.rows(block.data):  # name the first row that does not fit, whatever its block is
                try:
                    grammar.read(RowBlock(offset, row), self.summary)
                except DataError as error:
                    raise DataError(error.what, where=f"byte {offset}", hint=error.hint) from None
                offset += len(row)
            raise


class TextFile:
    """`WholeFile` of csv and jsonl."""

    def __init__(self, layout: Layout, read: Callable[[], Iterator[bytes]]) -> None:
        self.summary = ReadSummary(layout.on_error)
        self._read = read
        opening = _Opening(layout, self.summary)
        last, size = b"", 0
        decoded: list[Learned] = []
        for item in self._first_pass(opening):
            if isinstance(item, RejectedRow):
                self.summary.reject(item.offset, item.reason)
                continue
            assert opening.grammar is not None
            rows, learned = opening.grammar.learn(item, self.summary)
            self.summary.rows += rows
            last = item.data[-2:]
            size += sum(len(each.data) if isinstance(each, RowBlock) else each.nbytes for each in learned)
            decoded = [*decoded, *learned] if size <= DECODED_BYTES else []
        assert opening.grammar is not None
        self._grammar: Grammar = opening.grammar
        self._grammar.learned()
        self._encoding = opening.encoding
        _note_end(last, self._grammar, self.summary)
        assert self._grammar.schema is not None
        self.schema: pa.Schema = self._grammar.schema
        self.kinds = self._grammar.shapes()
        if not self.schema.names:
            self.summary.rows = 0
        batches = [each for each in decoded if isinstance(each, pa.RecordBatch)]
        # The rows, unless there are too many, or of types from which the final types cannot be made.
        self._decoded = decoded if all(can_widen(batch.schema, self.schema) for batch in batches) else []

    def _first_pass(self, opening: _Opening) -> Iterator[RowBlock | RejectedRow]:
        splitter: RowSplitter | None = None
        for data in _joined(self._read()):
            text = opening.feed(data)
            if opening.grammar is not None:
                splitter = splitter or opening.splitter(WHOLE_BLOCK_BYTES)
                yield from splitter.feed(text)
        text = opening.finish()
        assert opening.grammar is not None
        splitter = splitter or opening.splitter(WHOLE_BLOCK_BYTES)
        yield from splitter.feed(text)
        yield from splitter.finish()

    def batches(self) -> Iterator[pa.RecordBatch]:
        summary = ReadSummary()
        decoded, self._decoded = self._decoded, []
        for item in decoded or self._second_pass():
            batches: list[pa.RecordBatch] = []
            if isinstance(item, pa.RecordBatch):
                batches = [widen(item, self.schema)] if self.schema.names else []
            elif isinstance(item, RowBlock):
                batches = self._grammar.read(item, summary)
            for batch in batches:
                summary.rows += batch.num_rows
                yield batch
        if summary.rows != self.summary.rows or summary.null_cells:
            raise DataError("the file has changed while it was read", hint="Read it again")

    def _second_pass(self) -> Iterator[RowBlock | RejectedRow]:
        transcoder = Transcoder(self._encoding)
        splitter = self._grammar.splitter(block_bytes=WHOLE_BLOCK_BYTES)
        skip = splitter.offset
        for data in _joined(self._read()):
            text = transcoder.feed(data)
            skipped, skip = skip, max(skip - len(text), 0)
            yield from splitter.feed(text[skipped:])
        yield from splitter.feed(transcoder.finish()[skip:])
        yield from splitter.finish()


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to at least `WHOLE_BLOCK_BYTES`, apart from the last."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        if len(joined) >= WHOLE_BLOCK_BYTES:
            yield bytes(joined)
            joined.clear()
    yield bytes(joined)


def _note_end(last: bytes, grammar: Grammar | None, summary: ReadSummary) -> None:
    """Note that the last line may be torn: it has no end, and is no whole object."""
    if last.strip() and not last.endswith(b"\n") and not (isinstance(grammar, JsonGrammar) and last.endswith(b"}")):
        summary.mark_torn()
