"""Parses Arrow type names, and selects and checks columns of schemas.

A type name is what `str(type)` gives, or one of Arrow's aliases: `int64`, `float`, `timestamp[us]`,
`timestamp[us, UTC]`, `decimal128(9, 2)`, `list<int64>`, `struct<x: int64, y: string>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from fastflight.errors import DataError, RequestError, nearest

# Arrow's C++ code recurses over nested types. No table of a device needs more levels.
MAX_TYPE_DEPTH = 8
# The number of columns that a request may name. A header of a million commas is not a table.
MAX_COLUMNS = 4096
# Values in one element of a list of objects. It may be written in three bytes, but takes memory for all values.
MAX_LIST_VALUES = 192
# Digits of a decimal, by its width in bits. Arrow accepts a larger scale, and then writes an error text for each value.
MAX_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
# Enough for "struct<...>" with a few hundred fields. A longer name is an attack on the parser below.
MAX_TYPE_NAME_CHARACTERS = 8192

_UNITS = ("s", "ms", "us", "ns")
PLAIN_TYPES: dict[str, pa.DataType] = {
    name: pa.type_for_alias(name)
    for name in (
        *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float", "float32", "double", "float64", "string", "utf8", "large_string", "binary", "large_binary"),
        *("date32", "date32[day]", "date64", "date64[ms]", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]"),
        *(f"{kind}[{unit}]" for kind in ("timestamp", "duration") for unit in _UNITS),
    )
}

# Type names of other languages, and the type to hint at: the nearest spelling would be a narrower type.
SYNONYMS = {
    **dict.fromkeys(("int", "integer", "long", "bigint"), "int64"),
    **dict.fromkeys(("number", "real", "numeric"), "float64"),
    **dict.fromkeys(("str", "text", "object", "varchar"), "string"),
    **dict.fromkeys(("timestamp", "datetime", "datetime64"), "timestamp[us]"),
    "boolean": "bool",
    "bytes": "binary",
    "date": "date32",
    "time": "time64[us]",
}

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?([A-Za-z0-9_+:/-]{1,64})\]")
_DECIMAL = re.compile(r"decimal128\((\d{1,2}),\s*(-?\d{1,2})\)")
_NESTED = re.compile(r"(list|struct)<(.*)>", re.DOTALL)
_FIELD = re.compile(r"\s*([^:<>,\s]+)\s*:\s*(.+?)\s*", re.DOTALL)


def schema_from_names(names: Mapping[str, str]) -> pa.Schema:
    """Return the schema with these columns (name to type name), in order.

    `RequestError` for an unknown type; it names the column and the nearest known type.
    """
    if len(names) > MAX_COLUMNS:
        raise RequestError(f"{len(names)} columns", where="schema", hint=f"At most {MAX_COLUMNS} columns")
    return pa.schema([(column, _type_of(str(name), column, 0)) for column, name in names.items()])


def _type_of(name: str, column: str, depth: int) -> pa.DataType:
    text = name.strip()
    if text in PLAIN_TYPES:
        return PLAIN_TYPES[text]
    if depth < MAX_TYPE_DEPTH and len(text) <= MAX_TYPE_NAME_CHARACTERS:
        if match := _ZONED.fullmatch(text):
            return pa.timestamp(match[1], match[2])
        if match := _DECIMAL.fullmatch(text):
            return _decimal(int(match[1]), int(match[2]), column)
        if match := _NESTED.fullmatch(text):
            return _nested(match[1], match[2], column, depth + 1)
    hint = nearest(SYNONYMS.get(text.lower(), text), PLAIN_TYPES)
    raise RequestError(f"no Arrow type is named {text[:80]!r}", where=f"schema.{column}", hint=hint)


def _decimal(precision: int, scale: int, column: str) -> pa.DataType:
    if not 1 <= precision <= 38:
        raise RequestError(
            f"a precision of {precision}", where=f"schema.{column}", hint="decimal128 has 1 to 38 digits"
        )
    if abs(scale) > MAX_DIGITS[128]:
        raise RequestError(f"a scale of {scale}", where=f"schema.{column}", hint="decimal128 has a scale of -38 to 38")
    return pa.decimal128(precision, scale)


def _nested(kind: str, inner: str, column: str, depth: int) -> pa.DataType:
    if kind == "list":
        # Arrow prints the field of a list with its name ("item: int64"); people leave the name out.
        match = _FIELD.fullmatch(inner)
        return pa.list_(_type_of(match[2] if match and match[1] in ("item", "element") else inner, column, depth))
    fields = []
    for part in _split_fields(inner):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise RequestError(
                f"{part.strip()[:80]!r} is no field of a struct",
                where=f"schema.{column}",
                hint="Write struct<name: type, name: type>",
            )
        fields.append((match[1], _type_of(match[2], column, depth)))
    return pa.struct(fields)


def _split_fields(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    if not text.strip():
        return []
    parts, level, start = [], 0, 0
    for position, character in enumerate(text):
        level += (character in "<[(") - (character in ">])")
        if character == "," and level == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def values_in(type_: pa.DataType) -> int:
    """Return for how many values Arrow takes memory in one value of this type, nulls included."""
    if not pa.types.is_struct(type_):
        return 1
    return 1 + sum(values_in(type_.field(index).type) for index in range(type_.num_fields))


def has_large_list(type_: pa.DataType) -> bool:
    """Return whether a type contains a list whose elements take memory for more than `MAX_LIST_VALUES` values."""
    inner = [type_.field(index).type for index in range(type_.num_fields)]
    here = pa.types.is_list(type_) and values_in(type_.value_type) > MAX_LIST_VALUES
    return here or any(map(has_large_list, inner))


def project(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return `schema` with only `columns`, in their order; None selects all.

    `RequestError` for an unknown or repeated column.
    """
    if columns is None:
        return schema
    for position, name in enumerate(columns):
        if name not in schema.names:
            raise RequestError(f"no column is named {name!r}", where="columns", hint=nearest(name, schema.names))
        if name in columns[:position]:
            raise RequestError(f"column {name!r} is asked for twice", where="columns", hint="Name each column once")
    return pa.schema([schema.field(name) for name in columns], schema.metadata)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with only the columns of `schema`. `DataError` if one is missing or has another type."""
    if batch.schema.equals(schema):
        return batch
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            raise DataError(f"the batch has no column {field.name!r}", hint=nearest(field.name, batch.schema.names))
        if batch.schema.field(position).type != field.type:
            raise DataError(
                f"column {field.name!r} is {batch.schema.field(position).type}, not {field.type}",
                hint="All batches of a stream have its schema",
            )
    return batch.select(schema.names)


def require_unique(schema: pa.Schema) -> None:
    """Raise `DataError` if there are no columns, or two with the same name: the file could not be read back."""
    if not schema.names:
        raise DataError("the table has no columns", hint="Write at least one column")
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise DataError(f"two columns are named {name!r}", hint="Give each column a name of its own")
