"""Reads CSV and JSON lines. Both formats share these readers; each has a grammar that turns its rows into columns.

A `WholeFile` reads a complete file twice: all of its bytes decide the types of the columns, then it yields the rows. A
`TextReader` yields the rows as they arrive, with the types of a schema or of the first `SAMPLE_BYTES`: a cell that does
not fit becomes null and is counted. How the bytes arrive changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.tables.casting import readable_schema
from fastflight.tables.codec import Layout
from fastflight.tables.csv import CsvGrammar
from fastflight.tables.dialect import DELIMITERS, Dialect, require_names
from fastflight.tables.header import HEADER_LINES, LINES_BEFORE_HEADER
from fastflight.tables.json_array import ArrayLines, begins_array
from fastflight.tables.jsonl import JsonGrammar
from fastflight.tables.rows import BLOCK_BYTES, MAX_ROW_BYTES, RowBlock, Rows, RowSplitter
from fastflight.tables.sniffing import sniff, sniff_line
from fastflight.tables.summary import ReadSummary, RejectedRow
from fastflight.tables.transcoding import Transcoder, is_utf8

# The first part of a file, from which the dialect is found, and the types if the request wants no more: some pages of
# text, or some minutes of telemetry. It is held in memory.
SAMPLE_BYTES = 64 * 1024
# The least part that shows a dialect and types; a third of a second at 115200 baud.
LEAST_SAMPLE_BYTES = 4 * 1024
# Blocks of a file that is read whole: pyarrow is fastest at this size.
WHOLE_BLOCK_BYTES = 1024 * 1024
# Rows that are held in memory between finding their types and sending them: a larger file is read twice. Short numbers
# take twice as much as in the file, so it is enough for files of 12 MB.
HELD_BYTES = 24 * 1024 * 1024
# The encoding of files that are not UTF-8 and look like text of Western Europe.
WESTERN = "cp1252"


Grammar: TypeAlias = CsvGrammar | JsonGrammar


class _RowStream:
    """Cuts the bytes of a file into blocks of whole rows.

    Its `grammar` is known before the first block: from a sample of the file, or from the names of a schema. So are the
    types, unless the file is read as a whole.
    """

    def __init__(self, layout: Layout, summary: ReadSummary, *, whole: bool) -> None:
        self._layout = layout
        self._summary = summary
        self._block_bytes = WHOLE_BLOCK_BYTES if whole else BLOCK_BYTES
        self._learns = layout.schema is None and not whole
        self._transcoder = Transcoder(layout.text.encoding)
        self._splitter: RowSplitter | None = None
        self._head = b""
        self._last = b""
        # A file that is one array of objects is read as lines.
        self._array: ArrayLines | None = None
        self._sample = b""
        self.grammar: Grammar | None = None

    def feed(self, data: bytes) -> Iterator[RowBlock]:
        """Yield the blocks that `data` completes, and reject what cannot be a row."""
        return self._blocks(self._split(self._transcoder.feed(data), ended=False))

    def finish(self) -> Iterator[RowBlock]:
        """Yield the last blocks, and note whether the last line may be torn: it has no end, and is no whole object."""
        found = self._split(self._transcoder.finish(), ended=True)
        assert self._splitter is not None
        yield from self._blocks([*found, *self._splitter.finish()])
        whole = (b"\n", b"}") if self._layout.format == "jsonl" else b"\n"
        if self._last.strip() and not self._last.endswith(whole):
            self._summary.mark_torn()

    def _blocks(self, found: Sequence[RowBlock | RejectedRow]) -> Iterator[RowBlock]:
        for item in found:
            if isinstance(item, RejectedRow):
                self._summary.reject(item.offset, item.reason)
            else:
                self._last = item.data[-2:]
                yield item

    def _split(self, text: bytes, *, ended: bool) -> list[RowBlock | RejectedRow]:
        if self._splitter is None:
            self._head += text
            start = self._open(ended=ended)
            if start is None:
                return []
            assert self.grammar is not None
            self._splitter = self.grammar.splitter(self._transcoder.marks, self._block_bytes)
            if self._learns:
                self._learn(self.grammar, self._sample[start:], ended=ended)
            text, self._head, self._sample = self._head[start:], b"", b""
        if self._array is not None:
            text = self._array.feed(text) + (self._array.finish() if ended else b"")
        return self._splitter.feed(text)

    def _learn(self, grammar: Grammar, sample: bytes, *, ended: bool) -> None:
        """Find the types of the columns in the sample."""
        splitter = grammar.splitter()
        text = sample if self._array is None else ArrayLines().feed(sample)
        for item in (*splitter.feed(text), *splitter.finish()):
            if isinstance(item, RowBlock):
                grammar.learn(item, ReadSummary())
        grammar.learned()
        if not ended and grammar.schema is not None and not grammar.schema.names:
            # With a schema without columns, all rows would be dropped silently, including good ones that follow.
            raise DataError(
                "none of the first rows can be read, so the columns are not known",
                where="byte 0",
                hint="Name the columns in a schema, or try format raw",
            )

    def _open(self, *, ended: bool) -> int | None:
        """Find the grammar, and return where the rows begin; None if more of the file is needed."""
        if self._layout.schema is None:
            return self._open_by_sample(ended=ended)
        if self._layout.format == "jsonl":
            return self._open_json(ended=ended)
        return self._open_by_names(list(self._layout.schema), ended=ended)

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
        self._sample = head[:end] if end else head
        if self._layout.format == "jsonl":
            return self._open_json(ended=True)
        if not end and len(head) > MAX_ROW_BYTES:
            raise _no_header()
        if not self._transcoder.is_known and _is_western(self._sample):
            self._read_as_western()
            self._sample = self._sample.decode(WESTERN, "surrogateescape").encode(errors="surrogateescape")
        return self._open_csv(sniff(self._sample, self._layout.text))

    def _sample_bytes(self) -> int:
        """Return the size of the sample: as much as the rows that are wanted take, with their header."""
        wanted = self._layout.sample_rows
        if wanted is None:
            return SAMPLE_BYTES
        rows = re.match(rb"(?:[^\n]*+\n){%d}" % (wanted + HEADER_LINES), self._head[:SAMPLE_BYTES])
        if rows is None:
            return SAMPLE_BYTES
        return self._head.find(b"\n", max(rows.end(), LEAST_SAMPLE_BYTES) - 1, SAMPLE_BYTES) + 1 or SAMPLE_BYTES

    def _open_json(self, *, ended: bool) -> int | None:
        skipped = re.match(rb"(?:[^\n]*+\n){%d}" % self._layout.text.skip_rows, self._head)
        if skipped is None and not ended:
            return None
        start = len(self._head) if skipped is None else skipped.end()
        is_array = begins_array(self._head[start:], ended=ended)
        if is_array is None:
            return None
        if is_array:
            self._array = ArrayLines()
        self.grammar = JsonGrammar(self._layout, start)
        return start

    def _open_csv(self, dialect: Dialect) -> int:
        for note in dialect.notes:
            self._summary.note(note)
        self.grammar = CsvGrammar(self._layout, dialect)
        return dialect.start

    def _open_by_names(self, names: list[str], *, ended: bool) -> int | None:
        """Look at one line after the other until one shows where the columns are, so that no row has to wait."""
        options, head = self._layout.text, self._head
        comment = options.comment or "#"
        start = number = before = 0
        others: list[str] = []  # lines that are none of the table
        while (end := head.find(b"\n", start) + 1) or (ended and start < len(head)):
            end = end or len(head)
            line = head[start:end]
            if not self._transcoder.is_known and head[:start].isascii() and _is_western(line):
                self._read_as_western()
                return self._open_by_names(names, ended=ended)
            number += 1
            text = line.decode(errors="replace").rstrip("\r\n")
            if number > options.skip_rows and text.strip():
                if not text.startswith(comment):
                    dialect = sniff_line(text, number, options, names, others[-1] if others else "")
                    if dialect is not None:
                        notes = (*dialect.notes, *([f"{before} lines before the header skipped"] if before else []))
                        mark = options.comment or (comment if before else None)
                        rows = end if dialect.headers else start
                        return self._open_csv(replace(dialect, start=rows, comment=mark, notes=notes))
                    others.append(text)
                before += 1
            start = end
            if before > LINES_BEFORE_HEADER:
                break
        else:
            if len(head) - start > MAX_ROW_BYTES:
                raise _no_header()
            if not ended:
                return None
        if others:
            delimiter = options.delimiter or next((each for each in DELIMITERS if each in others[0]), ",")
            require_names(Dialect(delimiter).texts(others[0]), names)
        return self._open_csv(Dialect(names=tuple(names), start=len(head)))

    def _read_as_western(self) -> None:
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
        self._stream = _RowStream(layout, self.summary, whole=False)
        self._declared = None if layout.schema is None else readable_schema(layout)

    @property
    def schema(self) -> pa.Schema | None:
        grammar = self._stream.grammar
        return self._declared if grammar is None else grammar.schema

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        return self._read(self._stream.feed(data))

    def finish(self) -> list[pa.RecordBatch]:
        return self._read(self._stream.finish())

    def _read(self, blocks: Iterator[RowBlock]) -> list[pa.RecordBatch]:
        batches = [batch for block in blocks for batch in self._read_block(block)]
        self.summary.rows += sum(batch.num_rows for batch in batches)
        return batches

    def _read_block(self, block: RowBlock) -> list[pa.RecordBatch]:
        grammar = self._stream.grammar
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


class WholeFile:
    """A complete file of csv or jsonl without a schema, all of which was read to find its columns.

    `schema`: the narrowest type of each column that holds all of its values exactly. `kinds`: the values of each column
    of the file, in order; files that are read together have the kinds of all. `summary` is complete before the first
    batch, with the number of rows.
    """

    def __init__(self, layout: Layout, read: Callable[[], Iterator[bytes]]) -> None:
        """Read the file once. `read` yields its bytes, and may be called again. `DataError` if it cannot be read.

        Takes as long as reading the file: call it in a thread.
        """
        self.summary = ReadSummary(layout.on_error)
        self._layout = layout
        self._read = read
        stream = _RowStream(layout, self.summary, whole=True)
        size = 0
        self._held: list[Rows] = []
        for block in self._blocks(stream):
            assert stream.grammar is not None
            rows = stream.grammar.learn(block, self.summary)
            size += len(block.data) if isinstance(rows, RowBlock) else rows.nbytes
            self._held = [*self._held, rows] if size <= HELD_BYTES else []
        assert stream.grammar is not None
        self._grammar: Grammar = stream.grammar
        self._grammar.learned()
        assert self._grammar.schema is not None
        if not all(map(self._grammar.reads, self._held)):
            self._held = []
        self.schema: pa.Schema = self._grammar.schema
        self.kinds = self._grammar.shapes()
        if not self.schema.names:
            self.summary.rows = 0

    def _blocks(self, stream: _RowStream) -> Iterator[RowBlock]:
        for data in _joined(self._read()):
            yield from stream.feed(data)
        yield from stream.finish()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Memory holds one block of the file and its rows, or all of them if they are few."""
        summary = ReadSummary()
        held, self._held = self._held, []
        for rows in held or self._blocks(_RowStream(self._layout, ReadSummary(), whole=True)):
            for batch in self._grammar.read(rows, summary):
                summary.rows += batch.num_rows
                yield batch
        if summary.rows != self.summary.rows or summary.null_cells:
            raise DataError("the file has changed while it was read", hint="Read it again")


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to at least `WHOLE_BLOCK_BYTES`, apart from the last."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        if len(joined) >= WHOLE_BLOCK_BYTES:
            yield bytes(joined)
            joined.clear()
    yield bytes(joined)
