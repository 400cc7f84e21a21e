"""CSV: a header line, then rows of cells (RFC 4180, with LF or CRLF).

Reading: the delimiter is the first of comma, tab and semicolon that occurs in the header line. Columns are matched to
an explicit schema by name: extra columns of the file are dropped, missing ones are a `DataError`. An empty cell is null
unless it is quoted; blank lines are skipped, except in a table of one column, where each is a null. A carriage return
that is not followed by a line feed is only allowed inside quotes.

Writing is the inverse: commas, LF, quotes only where needed, timestamps as ISO 8601 (UTC where the column has a zone).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv

from fastflight.errors import DataError, RequestError, nearest
from fastflight.tables.codec import Layout
from fastflight.tables.few_rows import FewRows
from fastflight.tables.fitting import cell_test
from fastflight.tables.inference import infer_cells
from fastflight.tables.rows import RowSplitter, cell_pattern, row_pattern
from fastflight.tables.schemas import MAX_COLUMNS, holds_decimals, project, schema_from_names
from fastflight.tables.summary import shorten
from fastflight.tables.text import TextReader

DELIMITERS = b",\t;"
TRUE = ["true", "True", "TRUE", "1"]
FALSE = ["false", "False", "FALSE", "0"]

_BARE_CR = re.compile(rb"\r(?!\n)")
_QUOTED_CELL = re.compile(rb'"(?:[^"]++|"")*+"')
_BOM = b"\xef\xbb\xbf"


def csv_reader(layout: Layout) -> TextReader:
    splitter = RowSplitter(DELIMITERS)
    return TextReader(CsvGrammar(layout, splitter), splitter, layout.on_error)


class CsvGrammar:
    """`Grammar` of CSV."""

    def __init__(self, layout: Layout, splitter: RowSplitter) -> None:
        self._splitter = splitter
        self._columns = layout.columns
        self._wanted = None if layout.schema is None else schema_from_names(layout.schema)
        self._header: list[str] = []
        self._reader: _BlockReader | None = None
        self._tests: list[tuple[int, pa.Field, Callable[[str], object]]] = []
        self.schema: pa.Schema | None = None
        if self._wanted is not None:
            self.schema = project(self._wanted, layout.columns)
            self._refuse_unreadable(self.schema)

    @staticmethod
    def _refuse_unreadable(schema: pa.Schema) -> None:
        for field in schema:
            if not _is_readable(field.type):
                raise RequestError(
                    f"a CSV cell can not hold {field.type}",
                    where=f"schema.{field.name}",
                    hint="Read it as string, or keep such columns in a jsonl or arrow file",
                )

    def begin(self, row: bytes) -> bool:
        if self._header:
            return False
        if not row:
            raise DataError("the first row is too long or not closed", where="byte 0", hint="Start with a header line")
        if self._is_empty(row):
            return True
        delimiter = self._splitter.delimiter or b","
        self._cell = re.compile(cell_pattern(delimiter))
        self._quoted_cell = re.compile(rb"(?<![^\n" + re.escape(delimiter) + rb"])" + _QUOTED_CELL.pattern)
        self._header = self._names(row)
        if self._wanted is not None:
            for name in self._wanted.names:
                if name not in self._header:
                    raise DataError(
                        f"the file has no column {name!r}", where="header", hint=nearest(name, self._header)
                    )
        return True

    def _names(self, row: bytes) -> list[str]:
        try:
            names = [text for text, _ in self._cells(row.decode())]
        except UnicodeDecodeError as error:
            raise DataError(
                "the header is not UTF-8", where=f"byte {error.start}", hint="Is this a CSV file? Try format raw"
            ) from None
        if len(names) > MAX_COLUMNS:
            raise DataError(f"the header has {len(names)} columns", where="header", hint=f"At most {MAX_COLUMNS}")
        for position, name in enumerate(names):
            if name in names[:position]:
                raise DataError(
                    f"two columns are named {shorten(name)}", where="header", hint="Give each column a name of its own"
                )
        return names

    def _cells(self, row: str) -> list[tuple[str, bool]]:
        """Return the cells of a row without their quotes, and whether each was quoted."""
        row = row.rstrip("\n").removesuffix("\r")
        if '"' not in row:
            return [(cell, False) for cell in row.split((self._splitter.delimiter or b",").decode())]
        data = row.encode()
        cells, at = [], 0
        while True:
            match = self._cell.match(data, at)
            raw = match[0] if match else b""
            quoted = _QUOTED_CELL.match(raw)
            if quoted:
                inner = quoted[0][1:-1].replace(b'""', b'"') + raw[quoted.end() :]
                cells.append((inner.decode(), True))
            else:
                cells.append((raw.decode(), False))
            at += len(raw) + 1
            if at > len(data):
                return cells

    def infer(self, rows: Sequence[bytes]) -> bool:
        columns: list[list[str | None]] = [[] for _ in self._header]
        for row in rows:
            try:
                cells = self._cells(row.decode())
            except UnicodeDecodeError:
                continue
            if len(cells) == len(columns):
                for column, (text, quoted) in zip(columns, cells, strict=True):
                    column.append(text if text or quoted else None)
        fields = [pa.field(name, infer_cells(cells)) for name, cells in zip(self._header, columns, strict=True)]
        self.schema = project(pa.schema(fields), self._columns)
        return True  # the header always shows the columns

    def rows(self, data: bytes) -> Iterator[bytes]:
        if b'"' in data and self._splitter.delimiter is not None:
            return (match[0] for match in row_pattern(self._splitter.delimiter).finditer(data) if match[0])
        return iter(data.splitlines(keepends=True) if b"\r" not in data else _lines(data))

    @staticmethod
    def _is_empty(row: bytes) -> bool:
        return row in (b"\n", b"\r\n")

    def is_blank(self, row: bytes) -> bool:
        return len(self._header) > 1 and self._is_empty(row)

    def _has_bare_cr(self, data: bytes) -> bool:
        """Return whether there is a lone carriage return outside of quotes, where pyarrow would end a row."""
        return bool(_BARE_CR.search(data) and _BARE_CR.search(self._quoted_cell.sub(b"", data)))

    def parse(self, data: bytes) -> pa.RecordBatch:
        if self._has_bare_cr(data):
            raise pa.ArrowInvalid("a carriage return")
        if not data.isascii():
            _require_utf8(data)
        if self._reader is None:
            self._reader = _BlockReader(self._header, self.schema, self._splitter.delimiter or b",")
        return self._reader.read(data if data.endswith(b"\n") else data + b"\n")

    def screen(self, row: bytes) -> bytes | str:
        try:
            text = row.decode()
        except UnicodeDecodeError as error:
            return f"byte {error.start} of the row, 0x{row[error.start]:02x}, is not UTF-8"
        if self._has_bare_cr(row):
            return "a carriage return outside of quotes"
        cells = self._cells(text)
        if len(cells) != len(self._header):
            return f"the row has {len(cells)} cells, the header has {len(self._header)}"
        if not self._tests:
            fields = self.schema or ()
            self._tests = [
                (self._header.index(field.name), field, cell_test(field.type, TRUE, FALSE)) for field in fields
            ]
        for position, field, test in self._tests:
            cell, quoted = cells[position]
            if (cell or quoted) and not test(cell):
                return _explain_cell(field, cell)
        return row if row.endswith(b"\n") else row + b"\n"

    def explain(self, row: bytes) -> str:
        cells = self._cells(row.decode())
        for field in self.schema or ():
            try:
                _BlockReader(self._header, pa.schema([field]), self._splitter.delimiter or b",").read(row)
            except pa.ArrowInvalid:
                return _explain_cell(field, cells[self._header.index(field.name)][0])
        return "the row can not be read"


def _explain_cell(field: pa.Field, cell: str) -> str:
    return f"column {shorten(field.name)}: {shorten(cell)} is not {field.type}"


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _require_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("not UTF-8") from None


# Cached, because pyarrow starts a thread for each of these probes, and schemas use few different types.
@lru_cache(maxsize=256)
def _is_readable(type_: pa.DataType) -> bool:
    """Return whether pyarrow reads values of this type from CSV."""
    try:
        _BlockReader(["c"], pa.schema([("c", type_)]), b",").read(b"\n")
    except pa.ArrowNotImplementedError:
        return False
    return True


# Larger than any block that is passed to pyarrow, so that pyarrow never splits one.
_ONE_BLOCK = 4 * 1024 * 1024


class _BlockReader:
    """Reads whole rows with pyarrow. Makes the options once: they cost more than reading a small block."""

    def __init__(self, header: list[str], schema: pa.Schema, delimiter: bytes) -> None:
        self._schema = schema
        self._header = header
        self._delimiter = delimiter.decode()
        self._few = FewRows(schema, TRUE, FALSE)
        self._decimals = any(holds_decimals(field.type) for field in schema)
        self._read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_ONE_BLOCK, column_names=header)
        # Only blocks with quotes can have line feeds in cells, and allowing these makes parsing slower.
        self._plain, self._quoted = (
            pyarrow.csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=quoted, ignore_empty_lines=len(header) > 1
            )
            for quoted in (False, True)
        )
        self._convert = pyarrow.csv.ConvertOptions(
            check_utf8=False,  # checked for whole rows, so that the result does not depend on the selected columns
            column_types=schema,
            include_columns=schema.names,
            null_values=[""],
            true_values=TRUE,
            false_values=FALSE,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def read(self, data: bytes) -> pa.RecordBatch:
        if (few := self._few.from_csv(data, self._header, self._delimiter)) is not None:
            return few
        if data.startswith(_BOM):
            data = _BOM + data  # pyarrow drops a byte order mark at the start of every block, so add one
        parse = self._quoted if b'"' in data else self._plain
        table = pyarrow.csv.read_csv(pa.BufferReader(data), self._read, parse, self._convert)
        if not table.num_rows or not self._schema.names:
            return pa.RecordBatch.from_pylist([], self._schema)
        batch = table.to_batches()[0]
        if self._decimals:
            batch.validate(full=True)
        return batch
