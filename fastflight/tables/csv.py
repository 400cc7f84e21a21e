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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fastflight.tables.bare import empty
from fastflight.tables.casting import PLAIN_CELLS, TEXT, cast
from fastflight.tables.codec import Layout
from fastflight.tables.column_kinds import learn_column
from fastflight.tables.dialect import Dialect, require_names
from fastflight.tables.kinds import Kind
from fastflight.tables.rows import BLOCK_BYTES, RowBlock, RowSplitter, cell_pattern
from fastflight.tables.schemas import project
from fastflight.tables.shapes import Shape, columns_of, joined
from fastflight.tables.summary import ReadSummary, shorten
from fastflight.tables.text_schema import readable_schema
from fastflight.tables.transcoding import BOM, is_utf8

# pyarrow's reader starts a thread for each call. Up to so many rows and bytes, Python is faster.
FEW_ROWS, FEW_BYTES = 16, 4096
# Larger than any block that is passed to pyarrow, so that pyarrow never splits one.
_ONE_BLOCK = 4 * 1024 * 1024
_BARE_CR = re.compile(rb"\r(?!\n)")


class CsvGrammar:
    """`Grammar` of CSV."""

    def __init__(self, layout: Layout, dialect: Dialect) -> None:
        self._dialect = dialect
        self._columns = layout.columns
        self._others = layout.kinds or {}
        # What a sample does not show may have any value.
        self._unknown = TEXT if layout.infer == "sample" else None
        self._nulls = layout.text.null_values or ()
        # In one column of text, a value may be the same as the name.
        texts = layout.schema is not None and {"string", "utf8", "large_string"} >= {*layout.schema.values()}
        self._headers = frozenset[bytes]() if texts and len(dialect.names) == 1 else dialect.headers
        self._delimiter, self._quote = dialect.delimiter.encode(), dialect.quote.encode()
        # pyarrow needs a name for each column; those that are always empty have none.
        self._names = [name or f"\0{place}" for place, name in enumerate(dialect.names)]
        self._surplus = [place for place, name in enumerate(dialect.names) if not name]
        self._kinds = [Kind(0)] * len(self._names)
        self._cells = re.compile(cell_pattern(self._delimiter, self._quote))
        self._quoted = re.compile(
            rb"(?<![^\n"
            + re.escape(self._delimiter)
            + rb"])"
            + self._quote
            + rb"[^"
            + self._quote
            + rb"]*+"
            + self._quote
        )
        self.schema: pa.Schema | None = None
        if layout.schema is not None:
            require_names(dialect, list(layout.schema))
            self._set_schema(readable_schema(layout))

    def _set_schema(self, schema: pa.Schema) -> None:
        self.schema = schema
        # None for a column that only other files have.
        self._places = [self._names.index(name) if name in self._names else None for name in schema.names]
        # How to read plain cells of each column in Python; empty if there is a column that needs a cast.
        self._plain = [
            (field.name, place, PLAIN_CELLS[field.type])
            for field, place in zip(schema, self._places, strict=True)
            if field.type in PLAIN_CELLS and place is not None
        ]
        if len(self._plain) < len(schema):
            self._plain = []
        self._struct = pa.struct(list(schema))

    def splitter(self, marks: int = 0, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        return RowSplitter(self._delimiter, self._quote, self._dialect.start, marks, block_bytes)

    def learn(self, block: RowBlock, summary: ReadSummary) -> tuple[int, list[pa.RecordBatch | RowBlock]]:
        texts = self._split(block, summary)
        names, columns = [], []
        for place, name in enumerate(self._dialect.names):
            if name and (self._columns is None or name in self._columns):
                self._kinds[place], values = learn_column(
                    texts.column(place), self._kinds[place], self._dialect.decimal
                )
                names.append(name)
                columns.append(values)
        return texts.num_rows, [pa.RecordBatch.from_arrays(columns, names)] if columns and texts.num_rows else []

    def shapes(self) -> dict[str, Shape]:
        named = zip(self._dialect.names, self._kinds, strict=True)
        return {name: Shape(kinds=kinds & ~Kind.SPELLED) for name, kinds in named if name}

    def learned(self) -> None:
        self._set_schema(project(columns_of(joined(self._others, self.shapes()), self._unknown), self._columns))

    def read(self, block: RowBlock, summary: ReadSummary) -> list[pa.RecordBatch]:
        if (batch := self._read_few(block)) is None:
            batch = self._cast(self._split(block, summary), summary)
        return [batch] if batch.num_rows else []

    def _read_few(self, block: RowBlock) -> pa.RecordBatch | None:
        """Read a few plain rows in Python, in half the time that pyarrow's functions take; None for any other."""
        data = block.data
        if (
            not self._is_few(data)
            or not self._plain
            or self._nulls
            or b"\r" in data
            or self._quote in data
            or not self._is_regular(data)
        ):
            return None
        width, delimiter = len(self._names), self._dialect.delimiter
        objects = []
        try:
            for line in self._dialect.normalised(_ended(data)).decode().split("\n")[:-1]:
                cells = line.split(delimiter)
                if len(cells) != width or (not line and width > 1):
                    return None
                objects.append({name: value(cells[at]) if cells[at] else None for name, at, value in self._plain})
            return pa.RecordBatch.from_struct_array(pa.array(objects, self._struct))
        except (ValueError, KeyError):
            return None

    @staticmethod
    def _is_few(rows: bytes) -> bool:
        return len(rows) <= FEW_BYTES and rows.count(b"\n") <= FEW_ROWS

    def _cast(self, texts: pa.RecordBatch, summary: ReadSummary) -> pa.RecordBatch:
        assert self.schema is not None
        columns = []
        for field, place in zip(self.schema, self._places, strict=True):
            if place is None:
                columns.append(pa.nulls(texts.num_rows, field.type))
                continue
            column, misfits = cast(texts.column(place), field.type, self._dialect.decimal)
            if misfits is not None:
                reason = f"column {shorten(field.name)}: {shorten(misfits[0].as_py())} is not {field.type}"
                summary.add_null_cells(field.name, len(misfits), reason)
            columns.append(column)
        if not columns:
            return empty(self.schema)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _is_regular(self, data: bytes) -> bool:
        """Whether all bytes are UTF-8, and no row needs a look of its own, apart from its cells."""
        if b"\0" in data or (b"\r" in data and _BARE_CR.search(data)):
            return False
        if not data.isascii() and not is_utf8(data):
            return False
        comment = self._dialect.comment
        if comment and (data.startswith(comment.encode()) or b"\n" + comment.encode() in data):
            return False
        return not any(data.startswith(header) or b"\n" + header in data for header in self._headers)

    def _split(self, block: RowBlock, summary: ReadSummary) -> pa.RecordBatch:
        """Return the cells of all rows as columns of text. Rows that cannot be split are rejected."""
        if self._is_regular(block.data):
            try:
                return self._columns_of(self._dialect.normalised(_ended(block.data)))
            except pa.ArrowInvalid:
                pass
        return self._columns_of(b"".join(self._good_rows(block, summary)))

    def _columns_of(self, rows: bytes) -> pa.RecordBatch:
        """Split rows, or raise `pa.ArrowInvalid` if any has another number of cells than the header."""
        if not rows:
            return empty(pa.schema([(name, TEXT) for name in self._names]))
        if self._is_few(rows):
            return self._few_columns_of(rows)
        read, plain, quoted, convert = _pyarrow_options(
            tuple(self._names), self._dialect.delimiter, self._dialect.quote, self._nulls
        )
        if rows.startswith(BOM):
            rows = BOM + rows  # pyarrow drops a byte order mark at the start of every block, so add one
        table = pyarrow.csv.read_csv(pa.BufferReader(rows), read, quoted if self._quote in rows else plain, convert)
        if not table.num_rows:
            return empty(table.schema)
        return self._without_surplus(table.combine_chunks().to_batches()[0])

    def _few_columns_of(self, rows: bytes) -> pa.RecordBatch:
        cells = [self._dialect.cells(row.decode()) for row in self.rows(rows) if row != b"\n" or len(self._names) == 1]
        if any(len(row) != len(self._names) for row in cells):
            raise pa.ArrowInvalid("a row of another number of cells")
        nulls = ("", *self._nulls)
        columns = [
            pa.array([None if not quoted and text in nulls else text for text, quoted in column], TEXT)
            for column in (zip(*cells, strict=True) if cells else [()] * len(self._names))
        ]
        return self._without_surplus(pa.RecordBatch.from_arrays(columns, self._names))

    def _without_surplus(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if any(pc.sum(pc.binary_length(batch.column(place))).as_py() for place in self._surplus):
            raise pa.ArrowInvalid("a cell without a column")
        return batch

    def rows(self, data: bytes) -> Iterator[bytes]:
        """Split whole rows. Joined, they are `data` again."""
        if self._quote not in data:
            yield from data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
            return
        yield from (match[0] for match in _row_regex(self._delimiter, self._quote).finditer(data) if match[0])

    def _good_rows(self, block: RowBlock, summary: ReadSummary) -> Iterator[bytes]:
        """Yield the rows of a block that can be split, normalised; reject the others."""
        offset = block.offset
        for row in self.rows(block.data):
            line = row.rstrip(b"\n").removesuffix(b"\r")
            if line in self._headers:
                summary.skip_header(offset)
            elif not (self._dialect.comment and line.startswith(self._dialect.comment.encode())):
                good = self._good_row(line)
                if isinstance(good, bytes):
                    yield good
                elif good:
                    summary.reject(offset, good)
            offset += len(row)

    def _good_row(self, line: bytes) -> bytes | str:
        """Return a row with as many cells as the header; or a reason why it is rejected, empty for a blank line."""
        width = len(self._names)
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"byte {error.start} of the row, 0x{line[error.start]:02x}, is not UTF-8"
        bare = self._quoted.sub(b"", line)
        if b"\0" in bare:
            return f"{bare.count(0)} NUL {'byte' if bare.count(0) == 1 else 'bytes'} in the row"
        if _BARE_CR.search(bare):
            return "a carriage return outside of quotes"
        if not line.strip(b" \t") and width > 1:
            return ""
        row = self._dialect.normalised(line)
        cells = self._dialect.cells(row.decode())
        if len(cells) == width and not any(cells[place][0] for place in self._surplus):
            return row + b"\n"
        named = width - len(self._surplus)
        if not any(text for text, _ in cells[named:]) and (len(cells) >= named or len(cells) == self._dialect.narrow):
            return self._encoded([*cells[:named], *[("", False)] * (width - min(len(cells), named))])
        return f"the row has {len(cells)} cells, the header has {named}"

    def _encoded(self, cells: Sequence[tuple[str, bool]]) -> bytes:
        quote = self._dialect.quote
        texts = [quote + text.replace(quote, quote * 2) + quote if quoted else text for text, quoted in cells]
        return self._dialect.delimiter.join(texts).encode() + b"\n"


def _ended(data: bytes) -> bytes:
    return data if data.endswith(b"\n") else data + b"\n"


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@lru_cache(maxsize=64)
def _row_regex(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    cell = cell_pattern(delimiter, quote)
    return re.compile(cell + rb"(?:" + re.escape(delimiter) + cell + rb")*+\n?")


@lru_cache(maxsize=64)
def _pyarrow_options(names: tuple[str, ...], delimiter: str, quote: str, nulls: tuple[str, ...]) -> tuple[Any, ...]:
    """Return pyarrow's options, for rows without quotes and with: line feeds in cells make parsing slower."""
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_ONE_BLOCK, column_names=names)
    plain, quoted = (
        pyarrow.csv.ParseOptions(
            delimiter=delimiter, quote_char=quote, newlines_in_values=each, ignore_empty_lines=len(names) > 1
        )
        for each in (False, True)
    )
    convert = pyarrow.csv.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(names, TEXT),
        null_values=["", *nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return read, plain, quoted, convert
