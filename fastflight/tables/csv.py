"""CSV: a header line, then rows of cells (RFC 4180 and the dialects that `sniffing` finds).

Rows are split into columns of text, and these are cast. Columns are matched to a schema by name: other columns of the
file are not read, missing ones are a `DataError`. An empty cell is null unless it is quoted; blank lines are skipped,
except in a table of one column, where each is a null. So are comments and repeated headers.

A row is rejected if it has another number of cells than the header, unless the surplus ones are empty; if it is not
UTF-8; and if it holds a NUL or a lone carriage return outside of quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fastflight.tables.bare import one_content
from fastflight.tables.casting import TEXT, cast, readable_schema
from fastflight.tables.codec import Layout
from fastflight.tables.column_kinds import are_long, learn_column, plain_cells, without_exact
from fastflight.tables.dialect import Cell, Dialect, require_names
from fastflight.tables.kinds import NULLS, Kind, type_of
from fastflight.tables.rows import BLOCK_BYTES, RowBlock, Rows, RowSplitter, row_pattern
from fastflight.tables.schemas import project
from fastflight.tables.shapes import Shape, columns_of, joined
from fastflight.tables.summary import ReadSummary
from fastflight.tables.transcoding import BOM, is_utf8

# pyarrow's reader starts a thread for each call. Up to so many bytes, Python is faster.
FEW_BYTES = 1024
# Rows of a file that are looked at before its first block is read.
FIRST_ROWS = 64
# Rows with more columns would make too large a regular expression.
MATCHED_COLUMNS = 32
# The cells of a column, None for null: as they were split in Python, or by pyarrow.
Texts: TypeAlias = Sequence[str | None] | pa.Array
# Larger than any block that is passed to pyarrow, so that pyarrow never splits one.
_ONE_BLOCK = 4 * 1024 * 1024
_BARE_CR = re.compile(rb"\r(?!\n)")


class CsvGrammar:
    """Turns rows of CSV into columns. Without a schema: `learn` all rows, then `learned`, then `read`.

    The columns with one of the names in `valued` are never text.
    """

    # Known from the start, or after `learned`.
    schema: pa.Schema | None

    def __init__(self, layout: Layout, dialect: Dialect, valued: Collection[str] = ()) -> None:
        self._dialect = dialect
        self._valued = valued
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
        # The columns of numbers with many digits.
        self._long: set[int] = set()
        self._row = re.compile(row_pattern(self._delimiter, self._quote, trim=dialect.trim) + rb"\n?")
        mark = re.escape(self._quote)
        self._quoted = re.compile(
            rb"(?<![^\n" + re.escape(self._delimiter) + rb"])" + mark + rb"[^" + mark + rb"]*+" + mark
        )
        self.schema = None
        if layout.schema is not None:
            require_names(dialect.names, list(layout.schema))
            self.schema = readable_schema(layout)

    def splitter(self, marks: int = 0, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        """Return a splitter for the file from the first row of data on. `marks`: bytes of byte order marks before."""
        dialect = self._dialect
        return RowSplitter(self._delimiter, self._quote, dialect.start, marks, block_bytes, trim=dialect.trim)

    def learn(self, block: RowBlock, summary: ReadSummary) -> pa.RecordBatch:
        """Take whole rows into account for the types of the columns. Count them, and reject bad ones.

        Returns the rows for `read`: columns that show nothing new have the type of the rows so far, others are text.
        """
        if not any(self._kinds) and len(block.data) >= BLOCK_BYTES:
            self._learn_first(block)
        known = self._read_known(block.data)
        texts = [pa.array(column, TEXT) for column in self._split(block, summary)] if known is None else known.columns
        summary.rows += len(texts[0])
        wanted = [place for place in range(len(texts)) if self._is_wanted(place)]
        columns = list(texts)
        for place in wanted:
            if known is None or place in self._long:
                columns[place] = self._learn_column(place, texts[place])
        return pa.RecordBatch.from_arrays(columns, self._names).select(wanted)

    def _learn_first(self, block: RowBlock) -> None:
        """Take the first rows into account, which often show all that there is in a file."""
        first = RowBlock(block.offset, b"".join(islice(self.rows(block.data), FIRST_ROWS)))
        for place, cells in enumerate(self._split(first, ReadSummary())):
            if self._is_wanted(place):
                self._learn_column(place, pa.array(cells, TEXT))

    def _is_wanted(self, place: int) -> bool:
        name = self._dialect.names[place]
        return bool(name) and (self._columns is None or name in self._columns)

    def _learn_column(self, place: int, cells: pa.Array) -> pa.Array:
        """Add the kinds of a column of text, and return it; numbers with many digits as doubles, if they are exact."""
        known, decimal = self._kinds[place], self._dialect.decimal
        others, doubles = without_exact(cells, decimal) if place in self._long else (cells, None)
        skips_text = self._dialect.names[place] in self._valued
        kinds = self._kinds[place] = learn_column(others, known, decimal, skips_text=skips_text)
        if are_long(cells, kinds):
            self._long.add(place)
        return cells if doubles is None or type_of(kinds) != doubles.type else doubles

    def _read_known(self, rows: bytes) -> pa.RecordBatch | None:
        """Read rows with the types so far, long numbers as text. Returns None if they may show something new.

        One regular expression proves that the kinds of all other cells are known.
        """
        if not any(self._kinds) or len(self._kinds) > MATCHED_COLUMNS or len(rows) < BLOCK_BYTES:
            return None
        if not self._is_regular(rows):
            return None
        rows = self._dialect.normalised(rows)
        spelled = any(Kind.SPELLED in kinds for kinds in self._kinds)
        types = [self._known_type(place) for place in range(len(self._names))]
        if spelled and TEXT in types:
            return None
        row = re.escape(self._dialect.delimiter).join(map(self._known_cells, range(len(self._names))))
        if not pc.match_substring_regex(one_content(rows), rf"\A(?:{row}\r?\n)*\z")[0].as_py():
            return None
        return self._split_by_arrow(rows, types, NULLS if spelled else ())

    def _known_type(self, place: int) -> pa.DataType:
        is_text = not self._is_wanted(place) or place in self._long or not self._kinds[place] & ~Kind.SPELLED
        return TEXT if is_text else type_of(self._kinds[place])

    def _known_cells(self, place: int) -> str:
        """Return a regular expression for the cells of a column whose kinds are known."""
        if not self._names[place]:
            return ""
        if self._is_wanted(place) and place not in self._long and Kind.TEXT not in self._kinds[place]:
            plain = plain_cells(self._kinds[place], self._dialect.decimal)
            return f"(?:{'|'.join([plain, *map(re.escape, self._nulls)])})"
        quote, delimiter = re.escape(self._dialect.quote), re.escape(self._dialect.delimiter)
        return rf"(?:{quote}[^\r\n{quote}]*{quote}|[^\r\n{delimiter}{quote}]*)"

    def shapes(self) -> dict[str, Shape]:
        """Return the columns of the rows so far, and what their values are."""
        named = zip(self._dialect.names, self._kinds, strict=True)
        return {name: Shape(kinds=kinds & ~Kind.SPELLED) for name, kinds in named if name}

    def learned(self) -> None:
        """Set the schema, of the rows so far."""
        self.schema = project(columns_of(joined(self._others, self.shapes()), self._unknown), self._columns)

    def reads(self, rows: Rows) -> bool:
        """Whether `rows`, which `learn` has returned, can be cast to the types that were found in the end."""
        assert self.schema is not None and isinstance(rows, pa.RecordBatch)
        found = dict(zip(rows.schema.names, rows.schema.types, strict=True))
        return all(found.get(field.name, TEXT) == TEXT for field in self.schema if field.type == TEXT)

    def read(self, rows: Rows, summary: ReadSummary) -> list[pa.RecordBatch]:
        """Read whole rows. Reject bad ones, and count cells that do not fit."""
        assert self.schema is not None
        cells: dict[str, Texts]
        if isinstance(rows, RowBlock):
            columns = self._split(rows, summary)
            cells, count = dict(zip(self._names, columns, strict=True)), len(columns[0])
        else:
            cells, count = dict(zip(rows.schema.names, rows.columns, strict=True)), rows.num_rows
        if not count or not self.schema.names:
            return []
        found = []
        for name, type_ in zip(self.schema.names, self.schema.types, strict=True):
            if name not in cells:  # only other files have it
                found.append(pa.nulls(count, type_))
                continue
            column, misfits = cast(cells[name], type_, self._dialect.decimal)
            if len(misfits):
                summary.add_misfits(name, misfits.to_pylist(), type_)
            found.append(column)
        return [pa.RecordBatch.from_arrays(found, schema=self.schema)]

    def rows(self, data: bytes) -> Iterator[bytes]:
        """Split whole rows. Joined, they are `data` again."""
        return (match[0] for match in self._row.finditer(data) if match[0])

    def _split(self, block: RowBlock, summary: ReadSummary) -> Sequence[Texts]:
        """Return the cells of all rows by columns. Reject rows that cannot be split."""
        if len(block.data) > FEW_BYTES and self._is_regular(block.data):
            batch = self._split_by_arrow(self._dialect.normalised(block.data), [TEXT] * len(self._names))
            if batch is not None:
                columns: list[Texts] = batch.columns
                return columns
        return list(zip(*self._good_rows(block, summary), strict=True)) or [()] * len(self._names)

    def _is_regular(self, data: bytes) -> bool:
        """Whether all bytes are UTF-8, and no row needs a look of its own, apart from its cells."""
        if b"\0" in data or (b"\r" in data and _BARE_CR.search(data)):
            return False
        if not data.isascii() and not is_utf8(data):
            return False
        return not any(data.startswith(start) or b"\n" + start in data for start in self._skipped)

    def _split_by_arrow(
        self, rows: bytes, types: Sequence[pa.DataType], nulls: Sequence[str] = ()
    ) -> pa.RecordBatch | None:
        """Read rows as columns of `types`; None if there are none, or if any is not such a row.

        `nulls`: what also means null, in columns of every type.
        """
        if rows.startswith(BOM):
            rows = BOM + rows  # pyarrow drops a byte order mark at the start of every block, so add one
        columns = tuple(zip(self._names, types, strict=True))
        options = _pyarrow_options(columns, self._dialect, (*self._nulls, *nulls), self._quote in rows)
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(rows), *options)
        except pa.ArrowInvalid:
            return None
        if not table.num_rows:
            return None
        batch = table.combine_chunks().to_batches()[0]
        if any(pc.sum(pc.binary_length(batch.column(place))).as_py() for place in self._surplus):
            return None
        return batch

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
        if width > 1 and not line.strip(b" \t") and (self._delimiter == b" " or self._delimiter not in line):
            return ""
        cells = self._dialect.cells(line.decode())
        named = width - len(self._surplus)
        nameless = [*(cells[place] for place in self._surplus if place < len(cells)), *cells[width:]]
        if any(text for text, _ in nameless) or not (len(cells) >= named or len(cells) == self._dialect.narrow):
            return f"the row has {len(cells)} cells, the header has {named}"
        return [*cells[:width], *[("", False)] * (width - len(cells))]


@lru_cache(maxsize=64)
def _pyarrow_options(
    columns: tuple[tuple[str, pa.DataType], ...], dialect: Dialect, nulls: tuple[str, ...], quoted: bool
) -> tuple[Any, ...]:
    """Return pyarrow's options, for rows without quotes or with: line feeds in cells make parsing slower."""
    names = [name for name, _ in columns]
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_ONE_BLOCK, column_names=names)
    parse = pyarrow.csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char=dialect.quote,
        newlines_in_values=quoted,
        ignore_empty_lines=len(names) > 1,
    )
    convert = pyarrow.csv.ConvertOptions(
        check_utf8=False,
        column_types=dict(columns),
        null_values=nulls,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        decimal_point=dialect.decimal,
    )
    return read, parse, convert
