"""JSON lines: one object per line.

Reading: a missing key is null. A key without a column is ignored, unless the columns are inferred and `on_error` is
`fail`: then it is an error, because it may begin after the rows that the columns are inferred from. In a `string`
column a value that is no string is kept as its JSON text. Timestamps are ISO 8601 text, taken as UTC where the
column has a zone and the text has none; dates and decimals are text too. `NaN` and `Infinity` are read, though JSON has
none.

Writing is the inverse: one compact object per row, timestamps as ISO 8601. Bytes, times of day, durations, NaN and
infinities have no form in JSON and are refused; an answer for a browser has null in place of the last two.

pyarrow's reader with an explicit schema is iterative: it survives any depth of nesting. Python's is not, and raises
`RecursionError`, which the screening below takes for "ask pyarrow".
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
    holds_decimals,
    lists_too_much,
    project,
    schema_from_names,
    values_in,
)
from fastflight.tables.text import TextReader, shorten

# Values nested deeper are not turned into text. Far below Python's recursion limit, which depends on the caller too.
MAX_TEXT_NESTING = 200
# Values that a row has room for, for each of its bytes. A key that it lacks takes as much as one that it has: two bytes
# would take some megabytes in a table of a million values, and a file of them all memory.
VALUES_PER_BYTE = 64

_BLANK = b" \t\r\n"


def jsonl_reader(layout: Layout) -> TextReader:
    return TextReader(JsonGrammar(layout), RowSplitter(), layout.on_error)


class JsonGrammar:
    """`Grammar` of JSON lines."""

    def __init__(self, layout: Layout) -> None:
        self._columns = layout.columns
        # Nobody has chosen what to leave out, and whoever wants all rows wants all of each.
        self._strict = layout.on_error == "fail" and layout.schema is None and layout.columns is None
        self._reader: _BlockReader | None = None
        self._tests: list[tuple[pa.Field, Test]] = []
        self._least = 0  # bytes of a row
        self.schema: pa.Schema | None = None
        if layout.schema is not None:
            self._settle(schema_from_names(layout.schema))

    def _settle(self, schema: pa.Schema) -> None:
        schema = project(schema, self._columns)
        for field in schema:
            if not _is_readable(field.type):
                raise RequestError(
                    f"a JSON value can not hold {field.type}",
                    where=f"schema.{field.name}",
                    hint="Read it as string, or keep such columns in an arrow or packed file",
                )
            if lists_too_much(field.type):
                raise RequestError(
                    f"a list of objects with more than {MAX_LIST_VALUES} values",
                    where=f"schema.{field.name}",
                    hint="Read it as string, which is its JSON text, or name fewer of its fields",
                )
        self._least = math.ceil(sum(values_in(field.type) for field in schema) / VALUES_PER_BYTE)
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
        self._settle(pa.schema(list(columns.items())))
        return bool(columns)

    def parse(self, data: bytes) -> pa.RecordBatch:
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                raise pa.ArrowInvalid("not UTF-8") from None
        if not (data.startswith(b"{") and data.endswith(b"}\n") and data.count(b"}\n{") == data.count(b"\n") - 1):
            data = self._tidy(data)
        # Every line starts with "{" and ends with "}", so none continues another ("}" and "{" can only meet between
        # two objects), and if there are as many rows as lines, each line is one row.
        if self._reader is None:
            self._reader = _BlockReader(self.schema, strict=self._strict)
        if self._least > len(b"{}") and min(map(len, data.split(b"\n")[:-1]), default=self._least) < self._least:
            raise pa.ArrowInvalid("a row of next to nothing")
        return self._reader.read(data, data.count(b"\n"))

    def _tidy(self, data: bytes) -> bytes:
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
        if len(row) < self._least:
            return f"the row has {len(row)} bytes, and a row of this table at least {self._least}"
        try:
            value = json.loads(text, parse_float=Number)
        except json.JSONDecodeError as error:
            if b"Inf" not in row:  # pyarrow reads more spellings of infinity
                return f"not JSON: {error.msg} at character {error.pos} of {shorten(text)}"
            return row + b"\n"
        except (ValueError, RecursionError):  # an integer of 5000 digits, a thousand brackets
            return row + b"\n"
        late = next((name for name in value if name not in self._names), None) if self._strict else None
        if late is not None:
            return f"the key {shorten(late)} stands in none of the first rows"
        row = self._with_text(value, row)
        if not self._tests:
            self._tests = [(field, value_test(field.type)) for field in self.schema or ()]
        for field, test in self._tests:
            if not test(value.get(field.name)):
                return _misfit(json.loads(text, object_pairs_hook=list), field)
        return row + b"\n"

    def _with_text(self, value: dict[str, Any], row: bytes) -> bytes:
        """The row with JSON text where a string column has another value, which pyarrow would refuse."""
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
                return _misfit(pairs, field)
        if self._strict:
            return "a key within it stands in none of the first rows"
        return f"{shorten(row.decode().strip())} can not be read"


def _misfit(pairs: list[tuple[str, Any]], field: pa.Field) -> str:
    """Why the value of a column can not be read, of a row's keys and values."""
    values = [value for name, value in pairs if name == field.name]
    if len(values) > 1:
        return f"the key {shorten(field.name)} stands there twice"
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
    """A value as Python shows it; an object is a list of its pairs here."""
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


# A schema's types are few, and each look at one costs as much as a block of rows.
@lru_cache(maxsize=256)
def _is_readable(type_: pa.DataType) -> bool:
    """Whether pyarrow reads values of this type from JSON as they should be read."""
    if any(test(type_) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time)):
        return False
    try:
        _BlockReader(pa.schema([("c", type_)])).read(b"{}\n", 1)
    except pa.ArrowNotImplementedError:
        return False
    return True


# What pyarrow's JSON reader is asked for where it can not make the type from text itself; cast afterwards.
def _wire_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_date(type_):
        return pa.timestamp("s")
    return type_


class _BlockReader:
    """Reads whole rows with pyarrow. Its options are made once: they cost more than a small block takes to read."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        """`strict`: a key without a column is an error."""
        self._schema = schema
        wire = pa.schema([(field.name, _wire_type(field.type)) for field in schema])
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=wire, unexpected_field_behavior="error" if strict else "ignore"
        )
        # By name: those that are cast.
        self._dates = [field.name for field in schema if field.type != wire.field(field.name).type]
        self._decimals = any(holds_decimals(field.type) for field in schema)
        self._few = None if strict else FewRows(schema)

    def read(self, data: bytes, rows: int) -> pa.RecordBatch:
        """Read `rows` objects, or raise `pa.ArrowInvalid`."""
        if not rows:
            return pa.RecordBatch.from_pylist([], self._schema)
        if self._few is not None and (few := self._few.from_json(data, rows)) is not None:
            return few
        # One block, so that nothing depends on where pyarrow would cut it.
        whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pyarrow.json.read_json(pa.BufferReader(data), whole, self._parse)
        if table.num_rows != rows:
            raise pa.ArrowInvalid(f"{table.num_rows} objects on {rows} lines")
        if not self._schema.names:
            return pa.RecordBatch.from_pylist([], self._schema)
        table = table.select(self._schema.names)
        batch = (self._dated(table) if self._dates else table).combine_chunks().to_batches()[0]
        if self._decimals:
            batch.validate(full=True)
        return batch

    def _dated(self, table: pa.Table) -> pa.Table:
        """The table with dates as dates. A cast alone would drop the time of day without an error."""
        cast = table.cast(self._schema)
        for name in self._dates:
            if not cast[name].cast(table[name].type).equals(table[name]):
                raise pa.ArrowInvalid(f"a time of day in the dates of {name}")
        return cast
