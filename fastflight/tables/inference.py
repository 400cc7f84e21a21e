"""Infers column types from a sample of rows, in pure Python, so that no bytes from a device can crash the process.

CSV cells become `bool`, `int64`, `float64`, `date32`, `timestamp[us]` (`[us, UTC]` with a zone, `[ns]` with more than
six digits of a second) or `string`; a column without values is `string`. Numbers that a numeric type would change stay
text: those with leading zeros (identifiers), and integers beyond 64 bits.

JSON values become those types, lists and structs of them; a column whose values do not agree, nest deeper than
`MAX_NESTING` or list objects of more than `MAX_LIST_VALUES` values, is `string` and holds JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from fastflight.tables.schemas import MAX_LIST_VALUES, values_in

# Deeper lists and structs become JSON text: clients cannot show them as columns anyway.
MAX_NESTING = 8
# Fields of one struct. An object with more is used as a mapping, and becomes JSON text.
MAX_STRUCT_FIELDS = 256

INT64 = range(-(2**63), 2**63)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_LEADING_ZERO = re.compile(r"[+-]?0[0-9].*").fullmatch
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|nan|NaN|[+-]?(?:inf|Inf|Infinity)"
).fullmatch
_WHOLE = re.compile(r"[+-]?[0-9]+").fullmatch
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?P<time>[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]{1,9}))?)?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
).fullmatch
# The years all of whose days fit into 64 bits of nanoseconds.
_NANOSECOND_YEARS = range(1678, 2262)


def infer_cells(cells: Iterable[str | None]) -> pa.DataType:
    """Return the type of a CSV column. None stands for an empty cell."""
    kinds = {_cell_type(cell) for cell in cells if cell is not None}
    return _merge_scalars(kinds) or pa.string()


def _cell_type(cell: str) -> pa.DataType:
    if cell in ("true", "false", "True", "False", "TRUE", "FALSE"):
        return pa.bool_()
    if _INTEGER(cell):
        return pa.int64() if int(cell) in INT64 else pa.string()
    if _FLOAT(cell) and not _LEADING_ZERO(cell):
        return pa.string() if _WHOLE(cell) else pa.float64()
    return _text_type(cell)


def _text_type(text: str) -> pa.DataType:
    match = _MOMENT(text)
    if match is None:
        return pa.string()
    try:
        if match["time"] is None:
            date.fromisoformat(text)
            return pa.date32()
        year = datetime.fromisoformat(text).year
    except ValueError:
        return pa.string()
    unit = "ns" if len(match["fraction"] or "") > 6 else "us"
    if unit == "ns" and year not in _NANOSECOND_YEARS:
        return pa.string()
    return pa.timestamp(unit, "UTC" if match["zone"] else None)


def _merge_scalars(kinds: set[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds values of all `kinds`: string if no other does, None if there are no kinds."""
    if len(kinds) < 2:
        return next(iter(kinds), None)
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    zoned = {kind.tz is not None for kind in kinds if pa.types.is_timestamp(kind)}
    if len(zoned) == 1 and all(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in kinds):
        if zoned == {True} and pa.date32() in kinds:
            return pa.string()
        unit = "ns" if any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in kinds) else "us"
        return pa.timestamp(unit, "UTC" if zoned == {True} else None)
    return pa.string()


def infer_objects(rows: Iterable[Mapping[str, Any]], limit: int) -> dict[str, pa.DataType]:
    """Return names and types of the first `limit` columns of JSON objects, in the order of first appearance."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if name in values or len(values) < limit:
                values.setdefault(name, []).append(value)
    return {name: _column_type(column, 0) or pa.string() for name, column in values.items()}


def _column_type(values: list[Any], depth: int) -> pa.DataType | None:
    """Return the type of a column of JSON values; None if all are null."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, list) for value in present):
        return _list_type(present, depth + 1)
    if present and all(isinstance(value, dict) for value in present):
        return _struct_type(present, depth + 1)
    return _merge_scalars({_value_type(value, depth) for value in present})


def _value_type(value: Any, depth: int) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in INT64 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    # pyarrow reads times in JSON only at the top level; nested ones stay text.
    return _text_type(value) if isinstance(value, str) and depth == 0 else pa.string()


def _fits_nested(value_type: pa.DataType | None, values: list[Any]) -> bool:
    """Return whether the values can be nested as `value_type`.

    Inside a list or struct a `string` must hold strings only: other values become JSON text at the top level alone.
    """
    return value_type != pa.string() or all(value is None or isinstance(value, str) for value in values)


def _list_type(lists: list[list[Any]], depth: int) -> pa.DataType:
    values = [value for item in lists for value in item]
    inner = (_column_type(values, depth) if depth <= MAX_NESTING else None) or pa.string()
    return pa.list_(inner) if _fits_nested(inner, values) and values_in(inner) <= MAX_LIST_VALUES else pa.string()


def _struct_type(objects: list[dict[str, Any]], depth: int) -> pa.DataType:
    columns: dict[str, list[Any]] = {}
    for item in objects:
        for name, value in item.items():
            columns.setdefault(name, []).append(value)
    if depth > MAX_NESTING or not 0 < len(columns) <= MAX_STRUCT_FIELDS:
        return pa.string()
    fields = []
    for name, values in columns.items():
        inner = _column_type(values, depth)
        if not _fits_nested(inner, values):
            return pa.string()
        fields.append(pa.field(name, inner or pa.string()))
    return pa.struct(fields)
