"""The writers of CSV and JSON lines.

`as_text` turns a column into strings from which this package's readers get the same values: timestamps as ISO 8601 (in
UTC with `Z` if the column has a zone), and floats always with a point or an exponent, so that inference finds floats
again.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError
from fastflight.tables.bare import plain_type, plain_values
from fastflight.tables.codec import Layout, RowWriter
from fastflight.tables.schemas import conform, project, require_unique

TEXT = pa.large_string()

# The begin of year 0 and the end of year 9999, in seconds since 1970. No reader takes the text of other years, and for
# years beyond its calendar Arrow writes an error text as the value.
FIRST_SECOND, END_SECOND = -62_167_219_200, 253_402_300_800
DAY_SECONDS = 24 * 60 * 60
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def as_text(column: pa.Array, name: str) -> pa.Array:
    """Return the values of a column as strings, bytes in base64; nulls stay null. Nested types are not supported."""
    column = plain_values(column)
    type_ = column.type
    if _is_bytes(type_):
        return pa.array([None if value is None else b64encode(value).decode() for value in column.to_pylist()], TEXT)
    _require_years(column, name)
    if pa.types.is_float16(type_):
        column = column.cast(pa.float32())
    if pa.types.is_floating(type_):
        return pc.replace_substring_regex(column.cast(TEXT), r"^(-?[0-9]+)$", r"\1.0")
    if pa.types.is_timestamp(type_):
        utc = column.cast(pa.timestamp(type_.unit, "UTC")) if type_.tz else column
        return pc.replace_substring(utc.cast(TEXT), " ", "T", max_replacements=1)
    if pa.types.is_duration(type_):
        column = column.cast(pa.int64())
    return column.cast(TEXT)


def _require_years(column: pa.Array, name: str) -> None:
    """Raise `DataError` if a column holds a time outside of the years 0 to 9999."""
    if pa.types.is_date32(column.type):
        numbers, first, end = column.cast(pa.int32()), FIRST_SECOND // DAY_SECONDS, END_SECOND // DAY_SECONDS
    elif pa.types.is_timestamp(column.type) or pa.types.is_date64(column.type):
        per_second = _PER_SECOND["ms" if pa.types.is_date64(column.type) else column.type.unit]
        numbers, first, end = column.cast(pa.int64()), FIRST_SECOND * per_second, END_SECOND * per_second
    else:
        return
    least, most = pc.min_max(numbers).as_py().values()
    if least is not None and not first <= least <= most < end:
        raise DataError(
            "a value lies beyond the years 0 to 9999",
            where=f"column {name}",
            hint="Write it as arrow or packed, or set such values to null first",
        )


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_binary_view(type_)
    )


def _is_string(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _refuse(field: pa.Field, format_: str, hint: str) -> DataError:
    return DataError(f"{format_} can not hold {field.type}", where=f"column {field.name}", hint=hint)


class CsvWriter(RowWriter):
    """`RowWriter` of CSV."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self._schema = project(schema, layout.columns)
        require_unique(self._schema)
        for field in self._schema:
            type_ = plain_type(field.type)
            if _is_bytes(type_) and layout.bytes_as == "refuse":
                raise _refuse(field, "csv", "Write it as arrow or packed, or encode it as text first")
            if pa.types.is_nested(type_):
                raise _refuse(field, "csv", "Write it as jsonl or arrow, or flatten it first")
            if pa.types.is_interval(type_):
                raise _refuse(field, "csv", "Write it as arrow, or turn it into text or numbers first")

    def begin(self) -> bytes:
        names = pa.array(self._schema.names, TEXT)
        # Also quote names that a reader would take for another delimiter, a byte order mark or a blank line.
        return (",".join(_quoted(names, r'[",\r\n\t;]|^$|^\x{feff}').to_pylist()) + "\n").encode()

    def encode(self, batch: pa.RecordBatch) -> bytes:
        batch = conform(batch, self._schema)
        if not batch.num_rows:
            return b""
        cells = []
        for name, column in zip(self._schema.names, batch.columns, strict=True):
            text, type_ = as_text(column, name), plain_type(column.type)
            cells.append(_quoted(text, r'[",\r\n\x00]|^$') if _is_string(type_) or _is_bytes(type_) else text)
        comma, line_feed, nothing = (pa.scalar(text, TEXT) for text in (",", "\n", ""))
        rows = pc.binary_join_element_wise(*cells, comma, null_handling="replace", null_replacement="")
        lines = pc.binary_join_element_wise(rows, nothing, line_feed)
        size = pc.sum(pc.binary_length(lines)).as_py()
        return bytes(lines.buffers()[2].slice(0, size))


def _quoted(text: pa.Array, where: str) -> pa.Array:
    """Quote the strings that match the regular expression `where`; a quote inside is doubled."""
    needed = pc.match_substring_regex(text, where)
    if not pc.any(needed).as_py():
        return text
    quote, nothing = pa.scalar('"', TEXT), pa.scalar("", TEXT)
    doubled = pc.replace_substring(text, '"', '""')
    return pc.if_else(needed, pc.binary_join_element_wise(quote, doubled, quote, nothing), text)


_WITHOUT_JSON = (pa.types.is_duration, pa.types.is_time, pa.types.is_interval)


class JsonlWriter(RowWriter):
    """`RowWriter` of JSON lines. NaN and infinities become null: JSON has neither."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self._schema = project(schema, layout.columns)
        require_unique(self._schema)
        for field in self._schema:
            type_ = plain_type(field.type)
            if pa.types.is_nested(type_):
                _require_json(field, type_)
            elif any(test(type_) for test in _WITHOUT_JSON) or (_is_bytes(type_) and layout.bytes_as == "refuse"):
                raise _refuse(field, "jsonl", "Write it as arrow, or turn it into text or numbers first")

    def encode(self, batch: pa.RecordBatch) -> bytes:
        batch = conform(batch, self._schema)
        names = self._schema.names
        columns = [_json_values(column, name) for name, column in zip(names, batch.columns, strict=True)]
        for index, field in enumerate(self._schema):
            if _may_be_infinite(field.type):
                columns[index] = [finite(value) for value in columns[index]]
        lines = [
            json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            for row in zip(*columns, strict=True)
        ]
        return "".join(line + "\n" for line in lines).encode()


def _may_be_infinite(type_: pa.DataType) -> bool:
    type_ = plain_type(type_)
    return bool(pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _require_json(field: pa.Field, type_: pa.DataType) -> None:
    """Raise `DataError` for types inside of lists and structs that JSON does not have."""
    if pa.types.is_nested(type_) and not (pa.types.is_map(type_) or pa.types.is_union(type_)):
        inner = [type_.field(index) for index in range(type_.num_fields)]
        if pa.types.is_struct(type_) and len({each.name for each in inner}) < len(inner):
            raise _refuse(field, "jsonl", "Give each field of the struct a name of its own")
        for each in inner:
            _require_json(field, each.type)
        return
    is_json = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null, _is_string)
    if not any(test(type_) for test in is_json):
        raise _refuse(field, "jsonl", f"Write it as arrow, or turn the {type_} inside of it into text or numbers first")


def _json_values(column: pa.Array, name: str) -> list[Any]:
    column = plain_values(column)
    type_ = column.type
    if pa.types.is_temporal(type_) or pa.types.is_decimal(type_) or _is_bytes(type_):
        values: list[Any] = as_text(column, name).to_pylist()
        return values
    return list(column.to_pylist())


def finite(value: Any) -> Any:
    """Return a JSON value with None in place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value
