"""CSV: a header line, then rows of cells (RFC 4180 and the dialects that `dialect` finds).

Rows are split into columns of text, and these are cast. Columns are matched to a schema by name: other columns of the
file are not read, missing ones are a `DataError`. An empty cell is null unless it is quoted; blank lines are skipped,
except in a table of one column, where each is a null. So are comments and repeated headers.

A row is rejected if it has another number of cells than the header, unless the surplus ones are empty; if it is not
UTF-8; and if it holds a NUL or a lone carriage return outside of quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fastflight.tables.casting import TEXT, cast, readable_schema
from fastflight.tables.codec import Layout
from fastflight.tables.column_kinds import learn_column
from fastflight.tables.dialect import Cell, Dialect, require_names
from fastflight.tables.kinds import Kind
from fastflight.tables.rows import BLOCK_BYTES, Learned, RowBlock, RowSplitter, row_pattern
from fastflight.tables.schemas import project
from fastflight.tables.shapes import Shape, columns_of, joined
from fastflight.tables.summary import ReadSummary
from fastflight.tables.transcoding import BOM, is_utf8

# pyarrow's reader starts a thread for each call. Up to so many bytes, Python is faster.
FEW_BYTES = 1024
# The cells of a column, None for null: a list if they are few.
Texts: TypeAlias = pa.Array | Sequence[str | None]
# Larger than any block that is passed to pyarrow, so that pyarrow never splits one.
_ONE_BLOCK = 4 * 1024 * 1024
_BARE_CR = re.compile(rb"\r(?!\n)")


class CsvGrammar:
    """Turns rows of CSV into columns. Without a schema: `learn` all rows, then `learned`, then `read`."""

    # Known from the start, or after `learned`.
    schema: pa.Schema | None

    def __init__(self, layout: Layout, dialect: Dialect) -> None:
        self._dialect = dialect
        self._columns = layout.columns
        self._others = layout.kinds or {}
        # What a sample does not show may have any value.
        self._unknown = TEXT if layout.infer == "sample" else None
        self._nulls = ("", *(layout.text.null_values or ()))
        # In one column of text, a value may be the same as the name.
        texts = layout.schema is not None and {"string", "utf8", "large_string"} >= {*layout.schema.values()}
        self._headers = frozenset[bytes]() if texts and len(dialect.names) == 1 else dialect.headers
        self._delimiter, self._quote = dialect.delimiter.encode(), dialect.quote.encode()
        # pyarrow needs a name for each column; those that are always empty have none.
        self._names = tuple(name or f"\0{place}" for place, name in enumerate(dialect.names))
        self._surplus = [place for place, name in enumerate(dialect.names) if not name]
        # What lines begin with that are skipped: comments, and headers among the rows.
        self._skipped = (*((dialect.comment.encode(),) if dialect.comment else ()), *self._headers)
        self._kinds = [Kind(0)] * len(self._names)
        self._row = re.compile(row_pattern(self._delimiter, self._quote, trim=dialect.trim) + rb"\n?")
        mark = re.escape(self._quote)
        self._quoted = re.compile(
            rb"(?<![^\n" + re.escape(self._delimiter) + rb"])" + mark + rb"[^" + mark + rb"]*+" + mark
        )
        self.schema = None
        if layout.schema is not None:
            require_names(dialect.names, list(layout.schema))
            self._set_schema(readable_schema(layout))

    def _set_schema(self, schema: pa.Schema) -> None:
        self.schema = schema
        # The name and type of each column, and its place in a row; None if only other files have it.
        places = {name: place for place, name in enumerate(self._names)}
        self._fields = [(field.name, field.type, places.get(field.name)) for field in schema]

    def splitter(self, marks: int = 0, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        """Return a splitter for the file from the first row of data on. `marks`: bytes of byte order marks before."""
        dialect = self._dialect
        return RowSplitter(self._delimiter, self._quote, dialect.start, marks, block_bytes, trim=dialect.trim)

    def learn(self, block: RowBlock, summary: ReadSummary) -> list[Learned]:
        """Take whole rows into account for the types of the columns. Count them, and reject bad ones.

        Returns the rows: with the types of the columns so far, or as text.
        """
        texts = self._split(block, summary)
        if not texts:
            return []
        summary.rows += len(texts[0])
        names, columns = [], []
        for place, name in enumerate(self._dialect.names):
            if name and (self._columns is None or name in self._columns):
                self._kinds[place], values = learn_column(
                    pa.array(texts[place], TEXT), self._kinds[place], self._dialect.decimal
                )
                names.append(name)
                columns.append(values)
        return [pa.RecordBatch.from_arrays(columns, names)] if columns else []

    def shapes(self) -> dict[str, Shape]:
        """Return the columns of the rows so far, and what their values are."""
        named = zip(self._dialect.names, self._kinds, strict=True)
        return {name: Shape(kinds=kinds & ~Kind.SPELLED) for name, kinds in named if name}

    def learned(self) -> None:
        """Set the schema, of the rows so far."""
        self._set_schema(project(columns_of(joined(self._others, self.shapes()), self._unknown), self._columns))

    def read(self, block: RowBlock, summary: ReadSummary) -> list[pa.RecordBatch]:
        """Read whole rows. Reject bad ones, and count cells that do not fit."""
        texts = self._split(block, summary)
        if not texts or not self._fields:
            return []
        columns = []
        for name, type_, place in self._fields:
            if place is None:
                columns.append(pa.nulls(len(texts[0]), type_))
                continue
            column, misfits = cast(texts[place], type_, self._dialect.decimal)
            if len(misfits):
                summary.add_misfits(name, misfits.to_pylist(), type_)
            columns.append(column)
        return [pa.RecordBatch.from_arrays(columns, schema=self.schema)]

    def rows(self, data: bytes) -> Iterator[bytes]:
        """Split whole rows. Joined, they are `data` again."""
        return (match[0] for match in self._row.finditer(data) if match[0])

    def _split(self, block: RowBlock, summary: ReadSummary) -> Sequence[Texts]:
        """Return the cells of all rows by columns, nothing if there are no rows. Reject rows that cannot be split."""
        if self._is_regular(block.data):
            rows = self._dialect.normalised(block.data if block.data.endswith(b"\n") else block.data + b"\n")
            columns = self._split_few(rows) if len(rows) <= FEW_BYTES else self._split_by_arrow(rows)
            if columns is not None:
                return columns
        return list(zip(*self._good_rows(block, summary), strict=True))

    def _is_regular(self, data: bytes) -> bool:
        """Whether all bytes are UTF-8, and no row needs a look of its own, apart from its cells."""
        if b"\0" in data or (b"\r" in data and _BARE_CR.search(data)):
            return False
        if not data.isascii() and not is_utf8(data):
            return False
        return not any(data.startswith(start) or b"\n" + start in data for start in self._skipped)

    def _split_few(self, rows: bytes) -> Sequence[Texts] | None:
        """Cut rows at their delimiters; None if that is not enough, as for quotes."""
        if self._quote in rows or self._surplus:
            return None
        lines = rows.decode().replace("\r\n", "\n").split("\n")[:-1]
        cells = [line.split(self._dialect.delimiter) for line in lines]
        if any(len(row) != len(self._names) for row in cells):
            return None
        nulls = self._nulls
        return [[None if text in nulls else text for text in column] for column in zip(*cells, strict=True)]

    def _split_by_arrow(self, rows: bytes) -> Sequence[Texts] | None:
        """Split rows; None if any has another number of cells than the header."""
        if rows.startswith(BOM):
            rows = BOM + rows  # pyarrow drops a byte order mark at the start of every block, so add one
        options = _pyarrow_options(
            self._names, self._dialect.delimiter, self._dialect.quote, self._nulls, self._quote in rows
        )
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(rows), *options)
        except pa.ArrowInvalid:
            return None
        if not table.num_rows:
            return []
        batch = table.combine_chunks().to_batches()[0]
        if any(pc.sum(pc.binary_length(batch.column(place))).as_py() for place in self._surplus):
            return None
        columns: list[Texts] = batch.columns
        return columns

    def _good_rows(self, block: RowBlock, summary: ReadSummary) -> Iterator[list[str | None]]:
        """Yield the cells of the rows of a block that can be split, None for null; reject the others."""
        offset = block.offset
        comment = (self._dialect.comment or "").encode()
        for row in self.rows(block.data):
            line = row.rstrip(b"\n").removesuffix(b"\r")
            if line in self._headers:
                summary.skip_header(offset)
            elif not (comment and line.startswith(comment)):
                cells = self._cells(line)
                if isinstance(cells, list):
                    yield [None if not quoted and text in self._nulls else text for text, quoted in cells]
                elif cells:
                    summary.reject(offset, cells)
            offset += len(row)

    def _cells(self, line: bytes) -> list[Cell] | str:
        """Return a cell for each name; or a reason why the row is rejected, empty for a blank line."""
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"byte {error.start} of the row, 0x{line[error.start]:02x}, is not UTF-8"
        if b"\0" in line or b"\r" in line:
            bare = self._quoted.sub(b"", line)
            if b"\0" in bare:
                return f"{bare.count(0)} NUL {'byte' if bare.count(0) == 1 else 'bytes'} in the row"
            if _BARE_CR.search(bare):
                return "a carriage return outside of quotes"
        width = len(self._names)
        if width > 1 and not line.strip(b" \t") and (self._dialect.trim or self._delimiter not in line):
            return ""
        cells = self._dialect.cells(self._dialect.normalised(line).decode())
        named = width - len(self._surplus)
        nameless = [*(cells[place] for place in self._surplus if place < len(cells)), *cells[width:]]
        if any(text for text, _ in nameless) or not (len(cells) >= named or len(cells) == self._dialect.narrow):
            return f"the row has {len(cells)} cells, the header has {named}"
        return [*cells[:width], *[("", False)] * (width - len(cells))]


@lru_cache(maxsize=64)
def _pyarrow_options(
    names: tuple[str, ...], delimiter: str, quote: str, nulls: tuple[str, ...], quoted: bool
) -> tuple[Any, ...]:
    """Return pyarrow's options, for rows without quotes or with: line feeds in cells make parsing slower."""
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_ONE_BLOCK, column_names=names)
    parse = pyarrow.csv.ParseOptions(
        delimiter=delimiter, quote_char=quote, newlines_in_values=quoted, ignore_empty_lines=len(names) > 1
    )
    convert = pyarrow.csv.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(names, TEXT),
        null_values=nulls,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return read, parse, convert
