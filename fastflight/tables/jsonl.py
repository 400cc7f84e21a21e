"""JSON lines: one object per line.

A missing key is null. In a `string` column, a value that is no string becomes its JSON text. Dates, times and decimals
are text. What `json_objects` accepts besides JSON is a row, too. A row is rejected if it is not one object, holds a key
twice or half a surrogate pair, or is nested deeper than `MAX_TEXT_NESTING`.

pyarrow's reader parses most blocks, with a schema: its own guesses are not exact, and it cannot be given all types. The
others are parsed in Python, with the same result.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from fastflight.errors import DataError
from fastflight.tables.bare import one_content
from fastflight.tables.casting import TEXT, cast, is_text, readable_schema
from fastflight.tables.codec import Layout
from fastflight.tables.column_kinds import learn_column
from fastflight.tables.json_objects import as_json, parse_object, raw_values
from fastflight.tables.kinds import Kind
from fastflight.tables.rows import BLOCK_BYTES, RowBlock, Rows, RowSplitter
from fastflight.tables.schemas import MAX_COLUMNS, project, values_in
from fastflight.tables.shapes import Number, Shape, columns_of, joined
from fastflight.tables.summary import ReadSummary
from fastflight.tables.transcoding import is_utf8

# Values that one batch of a table with nested columns has room for. Arrow makes room for missing keys as well: `{}`
# would take some megabytes in a table of a million values per row.
MAX_BATCH_VALUES = 4 * 1024 * 1024
# pyarrow's reader starts a thread for each call. Up to this many rows, Python is faster.
FEW_ROWS = 16
# Into so many parts a block is divided that pyarrow's reader does not read.
PARTS = 8
# What Arrow may not read exactly: the whole number -0, which an integer does not give back, and the largest exponents.
_NEGATIVE_ZERO = re.compile(rb"-0(?![.0-9])").search
_FAR_EXPONENT = "[eE][+-]?[0-9]{3}"
# The fewest characters of a number with a point that a double may not give back: 16 digits.
_LONG_NUMBER = 17
# Tables for `bytes.translate`: each byte of digits and points is a 0; all that numbers do not have is a blank.
_AS_DIGITS = bytes(ord("0") if byte in b"0123456789." else ord(" ") for byte in range(256))
_NUMBERS_ALONE = bytes(byte if byte in b"0123456789.eE+-" else ord(" ") for byte in range(256))

_BLANK = b" \t\r\n"
_INTEGERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
# The classes of values that Arrow takes as they are, or refuses.
_CLASSES: dict[pa.DataType, set[type]] = {
    **dict.fromkeys(_INTEGERS, {int, NoneType}),
    pa.float64(): {float, int, NoneType},
    pa.bool_(): {bool, NoneType},
    pa.string(): {str, NoneType},
}


class JsonGrammar:
    """Turns JSON lines into columns; its methods are those of `CsvGrammar`."""

    def __init__(self, layout: Layout, start: int = 0) -> None:
        self._start = start
        self._columns = layout.columns
        self._others = layout.kinds or {}
        self._comment = layout.text.comment
        self._nulls = frozenset(layout.text.null_values or ())
        # Keys without a column are told only if neither the request nor the whole file has chosen the columns.
        self._tells_ignored = layout.schema is None and layout.columns is None and layout.infer == "sample"
        # What a sample does not show may have any value.
        self._unknown = TEXT if layout.infer == "sample" else None
        self._shapes: dict[str, Shape] = {}
        self.schema: pa.Schema | None = None
        if layout.schema is not None:
            self._set_schema(readable_schema(layout))

    def _set_schema(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows_at_once = max(MAX_BATCH_VALUES // (1 + sum(map(values_in, schema.types))), 1)
        self._wire = _wire_schema(schema)
        self._struct = pa.struct(list(schema))
        # For each column the classes of values that need no cast; none if all need one.
        self._as_they_are = [(field.name, _CLASSES.get(field.type, set())) for field in schema]

    def splitter(self, marks: int = 0, block_bytes: int = BLOCK_BYTES) -> RowSplitter:
        return RowSplitter(offset=self._start, marks=marks, block_bytes=block_bytes)

    def rows(self, data: bytes) -> Iterator[bytes]:
        return (line + b"\n" for line in data.removesuffix(b"\n").split(b"\n"))

    def learn(self, block: RowBlock, summary: ReadSummary) -> Rows:
        """Take whole rows into account for the types. Only rows that show something new are parsed in Python.

        Returns the rows for `read`: with the types of the rows so far, or as they stand.
        """
        data = block.data
        lines = data.count(b"\n")
        if lines > FEW_ROWS and not self._shapes:  # the first rows often show all that there is in a file
            head = data.split(b"\n", FEW_ROWS)[:FEW_ROWS]
            self._learn_rows(RowBlock(block.offset, b"\n".join(head)), ReadSummary())
        if lines <= FEW_ROWS:
            self._learn_rows(block, summary)
        elif (batch := self._learn_by_arrow(data, lines)) is not None:
            summary.rows += lines
            return batch
        else:
            start, step = 0, len(data) // PARTS
            while start < len(data):
                end = data.rfind(b"\n", start, start + step) + 1 or data.find(b"\n", start) + 1 or len(data)
                self.learn(RowBlock(block.offset + start, data[start:end]), summary)
                start = end
        return block

    def _learn_by_arrow(self, data: bytes, lines: int) -> pa.RecordBatch | None:
        """Read rows with the types of the rows so far. Returns None if they may show something new."""
        if not self._shapes or self._nulls or any(shape.is_json_text for shape in self._shapes.values()):
            return None
        schema = columns_of(self._shapes)
        if lines * (1 + sum(map(values_in, schema.types))) > MAX_BATCH_VALUES:
            return None
        batch = self._parsed_by_arrow(data, lines, _wire_schema(schema), strict=True)
        if batch is None or not _are_exact(data, batch):
            return None
        return batch if all(map(Shape.learn, self._shapes.values(), batch.columns)) else None

    def _learn_rows(self, block: RowBlock, summary: ReadSummary) -> None:
        objects, _ = self._parse(block, summary)
        summary.rows += len(objects)
        for row in objects:
            for name, value in row.items():
                shape = self._shapes.get(name)
                if shape is None:
                    if len(self._shapes) == MAX_COLUMNS:
                        raise DataError(
                            f"more than {MAX_COLUMNS} different keys", hint="Name the columns to read in a schema"
                        )
                    shape = self._shapes[name] = Shape()
                shape.add(value)

    def shapes(self) -> dict[str, Shape]:
        return self._shapes

    def learned(self) -> None:
        shapes = joined(self._others, self._shapes)
        self._set_schema(project(columns_of(shapes, self._unknown), self._columns))
        if any(shape.is_json_text for shape in shapes.values()):
            self._wire = None  # pyarrow does not give the text of a number

    def reads(self, rows: Rows) -> bool:
        """Whether `rows`, which `learn` has returned, have the types that were found in the end."""
        if isinstance(rows, RowBlock):
            return True
        if self._wire is None or rows.num_rows > self._rows_at_once:
            return False
        places = ((rows.schema.get_field_index(field.name), field.type) for field in self._wire)
        return all(place < 0 or rows.schema.field(place).type == type_ for place, type_ in places)

    def read(self, rows: Rows, summary: ReadSummary) -> list[pa.RecordBatch]:
        assert self.schema is not None
        if not isinstance(rows, RowBlock):
            return [self._cast(rows, summary)] if self.schema.names else []
        if (batch := self._read_regular(rows.data, summary)) is not None:
            return [batch]
        objects, lines = self._parse(rows, summary)
        if self._tells_ignored:
            columns = pa.struct(list(self.schema))
            for row in objects:
                for name in _unknown_keys(row, columns):
                    summary.ignore(name)
        step = self._rows_at_once
        if not self.schema.names:
            return []
        return [
            self._batch(objects[start : start + step], lines[start : start + step], summary)
            for start in range(0, len(objects), step)
        ]

    def _read_regular(self, data: bytes, summary: ReadSummary) -> pa.RecordBatch | None:
        """Read a block in which each line is an object that pyarrow reads in the same way; None for any other."""
        lines = data.count(b"\n")
        if self._nulls or not FEW_ROWS < lines <= self._rows_at_once:
            return None
        batch = self._parsed_by_arrow(data, lines, self._wire, strict=self._tells_ignored)
        return None if batch is None or _NEGATIVE_ZERO(data) else self._cast(batch, summary)

    def _cast(self, batch: pa.RecordBatch, summary: ReadSummary) -> pa.RecordBatch:
        """Return what pyarrow has read, with the types of the schema. Columns that it does not have are null."""
        columns = []
        for field in self.schema or ():
            place = batch.schema.get_field_index(field.name)
            if place < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column, misfits = cast(batch.column(place), field.type)
            summary.add_misfits(field.name, misfits.to_pylist(), field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _parsed_by_arrow(
        self, data: bytes, lines: int, wire: pa.Schema | None, *, strict: bool
    ) -> pa.RecordBatch | None:
        """Return one row of `wire` for each line; None if a line is no object of it. `strict`: with no other key."""
        if wire is None or not (data.startswith(b"{") and data.endswith(b"}\n") and data.count(b"}\n{") == lines - 1):
            return None
        # Every line starts with "{" and ends with "}", so no object continues on the next line ("}" and "{" can only
        # meet between two objects). If there are also as many rows as lines, each line is one row.
        if (b"\\" in data and b"\\u" in data) or not (data.isascii() or is_utf8(data)):
            return None
        parse = pyarrow.json.ParseOptions(
            explicit_schema=wire, unexpected_field_behavior="error" if strict else "ignore"
        )
        # A single block, so that pyarrow never splits the data.
        whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            table = pyarrow.json.read_json(pa.BufferReader(data), whole, parse)
        except pa.ArrowInvalid:
            plain = as_json(data)
            return None if plain == data else self._parsed_by_arrow(plain, lines, wire, strict=strict)
        if table.num_rows != lines:
            return None
        return table.select(wire.names).combine_chunks().to_batches()[0]

    def _parse(self, block: RowBlock, summary: ReadSummary) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the objects of all rows and their text. Reject rows that are no objects."""
        objects, lines = [], []
        offset = block.offset
        for line in block.data.split(b"\n"):
            row = line.strip(_BLANK)
            if row and not (self._comment and row.startswith(self._comment.encode())):
                found = parse_object(row)
                if isinstance(found, str):
                    summary.reject(offset, found)
                else:
                    objects.append(found[0])
                    lines.append(found[1])
            offset += len(line) + 1
        return objects, lines

    def _batch(self, objects: list[dict[str, Any]], lines: list[str], summary: ReadSummary) -> pa.RecordBatch:
        assert self.schema is not None
        if not self._nulls and all(type(row.get(name)) in each for name, each in self._as_they_are for row in objects):
            # One conversion for all columns. A number may still be too large for its column.
            with contextlib.suppress(OverflowError, pa.ArrowInvalid):
                return pa.RecordBatch.from_struct_array(pa.array(objects, self._struct))
        columns = []
        for field in self.schema:
            values = [row.get(field.name) for row in objects]
            if self._nulls:
                values = [None if type(value) is str and value in self._nulls else value for value in values]
            if is_text(field.type) and not _CLASSES[TEXT].issuperset(map(type, values)):
                values = [
                    value if value is None or type(value) is str else raw_values(line)[field.name]
                    for value, line in zip(values, lines, strict=True)
                ]
            column, misfits = _column(values, field.type)
            summary.add_misfits(field.name, misfits, field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _are_exact(data: bytes, batch: pa.RecordBatch) -> bool:
    """Whether the numbers in lines of JSON are for sure those of the columns that pyarrow has read from them."""
    if _NEGATIVE_ZERO(data) or pc.match_substring_regex(one_content(data), _FAR_EXPONENT)[0].as_py():
        return False
    doubles = [each for column in batch.columns for each in _columns_of_doubles(column)]
    for column in doubles:
        ends = pc.min_max(column.filter(pc.is_finite(column))).as_py()
        if ends["min"] is not None and not -(2**53) < ends["min"] <= ends["max"] < 2**53:
            return False  # a double may not hold so large a whole number exactly
    if not doubles or b"0" * _LONG_NUMBER not in data.translate(_AS_DIGITS):
        return True
    numbers = pc.ascii_split_whitespace(one_content(data.translate(_NUMBERS_ALONE)).cast(TEXT)).flatten()
    numbers = numbers.filter(pc.greater_equal(pc.binary_length(numbers), _LONG_NUMBER))
    return Kind.TEXT not in learn_column(numbers.filter(pc.match_substring_regex(numbers, "[.eE]")), Kind.FLOAT)


def _columns_of_doubles(column: pa.Array) -> list[pa.Array]:
    """Return the columns of doubles in a column."""
    if pa.types.is_nested(column.type):
        inner = [column.flatten()] if pa.types.is_list(column.type) else column.flatten()
        return [each for part in inner for each in _columns_of_doubles(part)]
    return [column] if pa.types.is_floating(column.type) else []


def _wire_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return the columns to ask of pyarrow's reader, of which a cast makes `schema`; None if Python must read one."""
    types = []
    for type_ in schema.types:
        as_text = pa.types.is_temporal(type_) or pa.types.is_decimal(type_)
        if not (as_text or _is_read_by_arrow(type_)):
            return None
        types.append(TEXT if as_text else type_)
    return pa.schema(zip(schema.names, types, strict=True)) if types else None


def _is_read_by_arrow(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        inner = [type_.field(index).type for index in range(type_.num_fields)]
        return bool(inner) and all(map(_is_read_by_arrow, inner))
    return type_ in _CLASSES or pa.types.is_null(type_)


def _unknown_keys(value: Any, type_: pa.DataType, within: str = "") -> Iterator[str]:
    """Yield the keys of a value that its type does not have, with those of the objects that they are in."""
    if isinstance(value, dict) and pa.types.is_struct(type_):
        for name, inner in value.items():
            place = type_.get_field_index(name)
            if place < 0:
                yield within + name
            else:
                yield from _unknown_keys(inner, type_.field(place).type, f"{within}{name}.")
    elif isinstance(value, list) and pa.types.is_list(type_):
        for item in value:
            yield from _unknown_keys(item, type_.value_type, within)


def _column(values: Sequence[Any], type_: pa.DataType) -> tuple[pa.Array, list[Any]]:
    """Return values as `type_`, and those that do not fit, which are null."""
    plain = _CLASSES.get(type_)
    if plain and plain.issuperset(map(type, values)):
        with contextlib.suppress(OverflowError, pa.ArrowInvalid):
            return pa.array(values, type_), []
    if pa.types.is_list(type_):
        return _list_column(values, type_)
    if pa.types.is_struct(type_):
        return _struct_column(values, type_)
    texts = [None if value is None else _text(value) for value in values]
    column, misfits = cast(pa.array(texts, TEXT), type_)
    # As many values as there are misfits, the first of them in front.
    return column, [values[texts.index(text)] for text in misfits[:1].to_pylist()] * len(misfits)


def _list_column(values: Sequence[Any], type_: pa.DataType) -> tuple[pa.Array, list[Any]]:
    misfits = [value for value in values if value is not None and not isinstance(value, list)]
    lists = [value if isinstance(value, list) else None for value in values]
    ends = list(accumulate((len(each or ()) for each in lists), initial=0))
    inner, more = _column([item for each in lists for item in each or ()], type_.value_type)
    valid = pa.array([each is None for each in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, type_, mask=valid), misfits + more


def _struct_column(values: Sequence[Any], type_: pa.DataType) -> tuple[pa.Array, list[Any]]:
    misfits = [value for value in values if value is not None and not isinstance(value, dict)]
    objects = [value if isinstance(value, dict) else None for value in values]
    fields = [type_.field(index) for index in range(type_.num_fields)]
    columns = []
    for field in fields:
        column, more = _column([None if each is None else each.get(field.name) for each in objects], field.type)
        columns.append(column)
        misfits += more
    missing = pa.array([each is None for each in objects], pa.bool_())
    if not columns:
        return pa.array([None if each is None else {} for each in objects], type_), misfits
    return pa.StructArray.from_arrays(columns, fields=fields, mask=missing), misfits


def _text(value: Any) -> str:
    """Return a value as the text that a cast reads."""
    if isinstance(value, str):
        return value
    if isinstance(value, Number):
        return value.text
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
