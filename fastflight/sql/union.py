"""The union of the typed rows of several boards: columns by name, with types that hold the values of all."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from fastflight.sources.row_layout import OWN_COLUMNS
from fastflight.sql.names import quoted

# The first column of a union, and what a board's own column of this name is called there.
DEVICE, RENAMED = "device", "device_2"
# Holds whole numbers of all types exactly.
WHOLE = pa.decimal128(20, 0)
# The types to which DuckDB casts columns that have another one.
CASTS = {pa.int64(): "bigint", WHOLE: "decimal(20, 0)", pa.float64(): "double", pa.string(): "varchar"}


def union_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns of the union of tables: `device`, and those of all tables by name, in upper or lower case.

    Whole numbers become `int64`, or `WHOLE` beside `uint64`; beside fractions they become `double`. Other types that
    differ become text.
    """
    found: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        name = RENAMED if field.name.lower() == DEVICE else field.name
        known = found.setdefault(name.lower(), pa.field(name, field.type))
        found[name.lower()] = known.with_type(_wider(known.type, field.type))
    return pa.schema([pa.field(DEVICE, pa.string()), *found.values()])


def select(whole: pa.Schema, held: pa.Schema, device: str | None = None) -> str:
    """Return a query for the rows of a table with the columns of `whole`, of which the table has those of `held`.

    `device` is the value of that column.
    """
    own = {field.name.lower(): field for field in held}
    if device is not None and DEVICE in own:
        own[RENAMED] = own[DEVICE]
    columns = []
    for field in whole:
        name = field.name if field.name in OWN_COLUMNS else quoted(field.name)
        have = own.get(field.name.lower())
        if device is not None and field.name == DEVICE:
            columns.append(f"{_text(device)} as {name}")
        elif have is None:
            columns.append(f"null as {name}")
        elif have.name == field.name and (have.type == field.type or field.type not in CASTS):
            columns.append(name)
        else:
            value = quoted(have.name)
            value = value if have.type == field.type else f"cast({value} as {CASTS[field.type]})"
            columns.append(f"{value} as {name}")
    return f"select {', '.join(columns)}"


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    types = (one, other)
    if all(_is_whole(each) for each in types):
        return WHOLE if pa.uint64() in types or WHOLE in types else pa.int64()
    if all(_is_whole(each) or pa.types.is_floating(each) for each in types):
        return pa.float64()
    return pa.string()


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_)) or type_ == WHOLE


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
