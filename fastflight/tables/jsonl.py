"""JSON lines: one object per line.

Reading: a missing key is null. A key without a column is ignored, unless the columns are inferred and `on_error` is
`fail`: then it is an error, because its first occurrence may come after the rows that the columns are inferred from. A
value in a `string` column that is no string becomes its JSON text. Timestamps are ISO 8601 text, read as UTC if the
column has a zone and the text has none; dates and decimals are text, too. `NaN` and `Infinity` are accepted, although
they are not JSON.

Writing is the inverse: one compact object per row, timestamps as ISO 8601. Bytes, times of day, durations, NaN and
infinities have no form in JSON: the first three are refused, and the last two are written as null.

pyarrow's reader with an explicit schema is iterative, so it can read values of any depth. Python's `json` is recursive,
and raises `RecursionError` for a row that is nested too deep. `JsonGrammar.screen` then leaves the row to pyarrow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from fastflight.errors import DataError, RequestError
from fastflight.tables.codec import Layout
from fastflight.tables.few_rows import FewRows
from fastflight.tables.fitting import Number, Test, value_test
from fastflight.tables.inference import infer_objects
from fastflight.tables.rows import RowSplitter
from fastflight.tables.schemas import (
    MAX_COLUMNS,
    MAX_LIST_VALUES,
    has_large_list,
    holds_decimals,
    project,
    schema_from_names,
    values_in,
)
from fastflight.tables.summary import shorten
from fastflight.tables.text import TextReader

# Values nested deeper are not turned into text. Far below Python's recursion limit, which the caller's own depth counts
# against, too.
MAX_TEXT_NESTING = 200
# The number of values in the schema for which a row must have a byte. Arrow makes room for missing keys as well: `{}`
# would take some megabytes in a table of a million values per row, and a file of such rows all memory.
VALUES_PER_BYTE = 64

_BLANK = b" \t\r\n"


def jsonl_reader(layout: Layout) -> TextReader:
    return TextReader(JsonGrammar(layout), RowSplitter(), layout.on_error)


class JsonGrammar:
    """`Grammar` of JSON lines."""

    def __init__(self, layout: Layout) -> None:
        self._columns = layout.columns
        # If the request names no columns and wants no row skipped, a key without a column is an error.
        self._strict = layout.on_error == "fail" and layout.schema is None and layout.columns is None
        self._reader: _BlockReader | None = None
        self._tests: list[tuple[pa.Field, Test]] = []
        self._min_row_bytes = 0
        self.schema: pa.Schema | None = None
        if layout.schema is not None:
            self._set_schema(schema_from_names(layout.schema))

    def _set_schema(self, schema: pa.Schema) -> None:
        schema = project(schema, self._columns)
        for field in schema:
            if not _is_readable(field.type):
                raise RequestError(
                    f"a JSON value can not hold {field.type}",
                    where=f"schema.{field.name}",
                    hint="Read it as string, or keep such columns in an arrow or packed file",
                )
            if has_large_list(field.type):
                raise RequestError(
                    f"a list of objects with more than {MAX_LIST_VALUES} values",
                    where=f"schema.{field.name}",
                    hint="Read it as string, which is its JSON text, or name fewer of its fields",
                )
        self._min_row_bytes = math.ceil(sum(values_in(field.type) for field in schema) / VALUES_PER_BYTE)
        self._names = frozenset(schema.names)
        self.schema = schema

    def begin(self, row: bytes) -> bool:
        return False

    def rows(self, data: bytes) -> Iterator[bytes]:
        lines = data.split(b"\n")
        yield from (line + b"\n" for line in lines[:-1])
        if lines[-1]:
            yield lines[-1]

    def is_blank(self, row: bytes) -> bool:
        return not row.strip(_BLANK)

    def infer(self, rows: Sequence[bytes]) -> bool:
        objects = []
        for row in rows:
            try:
                value = json.loads(row.decode())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                objects.append(value)
        columns = infer_objects(objects, MAX_COLUMNS + 1)
        if len(columns) > MAX_COLUMNS:
            raise DataError(f"more than {MAX_COLUMNS} different keys", hint="Name the columns to read in a schema")
        self._set_schema(pa.schema(list(columns.items())))
        return bool(columns)

    def parse(self, data: bytes) -> pa.RecordBatch:
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                raise pa.ArrowInvalid("not UTF-8") from None
        if not (data.startswith(b"{") and data.endswith(b"}\n") and data.count(b"}\n{") == data.count(b"\n") - 1):
            data = self._strip_lines(data)
        # Every line starts with "{" and ends with "}", so no object continues on the next line ("}" and "{" can only
        # meet between two objects). If there are also as many rows as lines, each line is one row.
        if self._reader is None:
            self._reader = _BlockReader(self.schema, strict=self._strict)
        least = self._min_row_bytes
        if least > len(b"{}") and min(map(len, data.split(b"\n")[:-1]), default=least) < least:
            raise pa.ArrowInvalid("a row is too short for its columns")
        return self._reader.read(data, data.count(b"\n"))

    def _strip_lines(self, data: bytes) -> bytes:
        lines = [stripped for line in data.split(b"\n") if (stripped := line.strip(_BLANK))]
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise pa.ArrowInvalid("not one object per line")
        return b"".join(line + b"\n" for line in lines)

    def screen(self, row: bytes) -> bytes | str:
        row = row.strip(_BLANK)
        try:
            text = row.decode()
        except UnicodeDecodeError as error:
            return f"byte {error.start} of the row, 0x{row[error.start]:02x}, is not UTF-8"
        if not (row.startswith(b"{") and row.endswith(b"}")):
            return f"{shorten(text)} is not a JSON object"
        if len(row) < self._min_row_bytes:
            return f"the row has {len(row)} bytes, and a row of this table at least {self._min_row_bytes}"
        try:
            value = json.loads(text, parse_float=Number)
        except json.JSONDecodeError as error:
            if b"Inf" not in row:  # pyarrow reads more spellings of infinity
                return f"not JSON: {error.msg} at character {error.pos} of {shorten(text)}"
            return row + b"\n"
        except (ValueError, RecursionError):  # an integer of 5000 digits, a thousand brackets
            return row + b"\n"
        unknown = next((name for name in value if name not in self._names), None) if self._strict else None
        if unknown is not None:
            return f"the key {shorten(unknown)} occurs in none of the first rows"
        row = self._stringify(value, row)
        if not self._tests:
            self._tests = [(field, value_test(field.type)) for field in self.schema or ()]
        for field, test in self._tests:
            if not test(value.get(field.name)):
                return _explain_value(json.loads(text, object_pairs_hook=list), field)
        return row + b"\n"

    def _stringify(self, value: dict[str, Any], row: bytes) -> bytes:
        """Return the row with JSON text in place of other values in string columns, which pyarrow would refuse."""
        changed = False
        for field in self.schema or ():
            inner = value.get(field.name)
            if not pa.types.is_string(field.type) or inner is None or isinstance(inner, str):
                continue
            if _is_shallow(inner):
                value[field.name] = json.dumps(inner, ensure_ascii=False, separators=(",", ":"))
                changed = True
        # In ASCII, so that half a surrogate pair reaches pyarrow, which refuses it.
        return json.dumps(value).encode() if changed and _is_shallow(value) else row

    def explain(self, row: bytes) -> str:
        try:
            _BlockReader(pa.schema([])).read(row, 1)
            pairs = json.loads(row, object_pairs_hook=list)
        except pa.ArrowInvalid as error:
            return "not JSON: " + str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
        except (ValueError, RecursionError):
            pairs = []
        for field in self.schema or ():
            try:
                _BlockReader(pa.schema([field])).read(row, 1)
            except pa.ArrowInvalid:
                return _explain_value(pairs, field)
        if self._strict:
            return "a key within it occurs in none of the first rows"
        return f"{shorten(row.decode().strip())} can not be read"


def _explain_value(pairs: list[tuple[str, Any]], field: pa.Field) -> str:
    """Return the reason why the value of a column cannot be read. `pairs` are the keys and values of the row."""
    values = [value for name, value in pairs if name == field.name]
    if len(values) > 1:
        return f"the key {shorten(field.name)} occurs twice"
    value = shorten(_plain(values[0])) if values else "something nested too deeply"
    return f"column {shorten(field.name)}: {value} is not {field.type}"


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_TEXT_NESTING):
        level = [
            item
            for inner in level
            if isinstance(inner, (list, dict))
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
        if not level:
            return True
    return False


def _plain(value: Any) -> Any:
    """Return a value for `repr`. Objects were parsed as lists of pairs; this turns the outermost one into a dict."""
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


# Cached, because each of these probes costs as much as a block of rows, and schemas use few different types.
@lru_cache(maxsize=256)
def _is_readable(type_: pa.DataType) -> bool:
    """Return whether pyarrow reads values of this type from JSON, and reads them correctly."""
    if any(test(type_) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time)):
        return False
    try:
        _BlockReader(pa.schema([("c", type_)])).read(b"{}\n", 1)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _wire_type(type_: pa.DataType) -> pa.DataType:
    """Return the type to ask of pyarrow's JSON reader, which cannot read dates; they are cast afterwards."""
    if pa.types.is_date(type_):
        return pa.timestamp("s")
    return type_


class _BlockReader:
    """Reads whole rows with pyarrow. Makes the options once: they cost more than reading a small block."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        """`strict`: a key without a column is an error."""
        self._schema = schema
        wire = pa.schema([(field.name, _wire_type(field.type)) for field in schema])
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=wire, unexpected_field_behavior="error" if strict else "ignore"
        )
        # Names of the columns that are cast after reading.
        self._dates = [field.name for field in schema if field.type != wire.field(field.name).type]
        self._decimals = any(holds_decimals(field.type) for field in schema)
        self._few = None if strict else FewRows(schema)

    def read(self, data: bytes, rows: int) -> pa.RecordBatch:
        """Read `rows` objects, or raise `pa.ArrowInvalid`."""
        if not rows:
            return pa.RecordBatch.from_pylist([], self._schema)
        if self._few is not None and (few := self._few.from_json(data, rows)) is not None:
            return few
        # A single block, so that pyarrow never splits the data.
        whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pyarrow.json.read_json(pa.BufferReader(data), whole, self._parse)
        if table.num_rows != rows:
            raise pa.ArrowInvalid(f"{table.num_rows} objects on {rows} lines")
        if not self._schema.names:
            return pa.RecordBatch.from_pylist([], self._schema)
        table = table.select(self._schema.names)
        batch = (self._cast_dates(table) if self._dates else table).combine_chunks().to_batches()[0]
        if self._decimals:
            batch.validate(full=True)
        return batch

    def _cast_dates(self, table: pa.Table) -> pa.Table:
        """Cast the columns of dates. A cast alone would drop a time of day; that is `pa.ArrowInvalid` here."""
        cast = table.cast(self._schema)
        for name in self._dates:
            if not cast[name].cast(table[name].type).equals(table[name]):
                raise pa.ArrowInvalid(f"a time of day in the dates of {name}")
        return cast
