"""Casts columns of text to a type. A cell that does not fit becomes null.

Blanks around a value do not count, and a word for a missing value (`kinds.NULLS`) is null, except in columns of text. A
moment without a zone is UTC in a column with a zone, and a column without one takes moments with a zone as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import RequestError
from fastflight.tables.kinds import INFINITIES, MINUS_INFINITIES, NANS, NULLS
from fastflight.tables.schemas import MAX_LIST_VALUES, has_large_list, project, schema_from_names

if TYPE_CHECKING:
    from fastflight.tables.codec import Layout

TEXT = pa.string()
# Clients name the types, and there is no end of them: time zones, digits of decimals, lists of lists.
MAX_KEPT_TYPES = 256
_DAY_ONE = "1970-01-01T"


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


@lru_cache(MAX_KEPT_TYPES)  # each live session with a schema asks
def is_castable(type_: pa.DataType) -> bool:
    """Whether text can be cast to this type."""
    if pa.types.is_null(type_):
        return True
    try:
        _cast(pa.nulls(0, TEXT), type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return not pa.types.is_nested(type_)


# Numbers that Python and Arrow read alike.
_NUMBERS: dict[pa.DataType, tuple[re.Pattern[str], Callable[[str], float]]] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (re.compile("-?[0-9]{1,18}"), int)),
    **dict.fromkeys((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), (re.compile("[0-9]{1,18}"), int)),
    pa.float64(): (re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?"), float),
}


def cast(cells: pa.Array | Sequence[str | None], type_: pa.DataType, decimal: str = ".") -> tuple[pa.Array, pa.Array]:
    """Return a column of text as `type_`, and the cells that do not fit, which are null.

    A list of cells is converted in Python if all are plain: for a few, each call of Arrow takes longer.
    """
    if isinstance(cells, pa.Array):
        return _cast_column(cells, type_, decimal)
    column = _plain_numbers(cells, type_)
    return _cast_column(pa.array(cells, TEXT), type_, decimal) if column is None else (column, column.slice(0, 0))


def _plain_numbers(cells: Sequence[str | None], type_: pa.DataType) -> pa.Array | None:
    """Return cells as numbers; None if any is not plain or does not fit."""
    if type_ not in _NUMBERS:
        return None
    plain, convert = _NUMBERS[type_]
    if not all(cell is None or plain.fullmatch(cell) for cell in cells):
        return None
    try:
        return pa.array([None if cell is None else convert(cell) for cell in cells], type_)
    except (OverflowError, pa.ArrowInvalid):
        return None


def _cast_column(column: pa.Array, type_: pa.DataType, decimal: str) -> tuple[pa.Array, pa.Array]:
    none = column.slice(0, 0)
    if column.type == type_:
        return column, none
    if pa.types.is_null(type_):
        return pa.nulls(len(column)), _misfits(column, _cleaned(column), pa.nulls(len(column)))
    cells = column
    if decimal != "." and (pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        cells = pc.replace_substring(column, decimal, ".")
    try:
        return _cast(cells, type_), none
    except pa.ArrowInvalid:
        pass
    if is_text(type_):
        return column.cast(type_), none
    cleaned = _cleaned(cells)
    if pa.types.is_floating(type_):
        cleaned = _plain_words(cleaned)
    values = cast_each(cleaned, type_, _cast)
    return values, _misfits(column, cleaned, values)


def _misfits(column: pa.Array, cleaned: pa.Array, values: pa.Array) -> pa.Array:
    return column.filter(pc.and_(pc.is_valid(cleaned), pc.is_null(values)))


def _cleaned(column: pa.Array) -> pa.Array:
    """Return the cells without the blanks around them, and null for those that spell no value."""
    trimmed = pc.utf8_trim(column, characters=" \t")
    missing = pc.is_in(trimmed, value_set=pa.array(["", *NULLS], trimmed.type))
    return pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed)


def _plain_words(column: pa.Array) -> pa.Array:
    """Return the cells with one spelling of NaN and each infinity, which a cast understands."""
    for words, plain in ((NANS, "nan"), (INFINITIES, "inf"), (MINUS_INFINITIES, "-inf")):
        column = pc.if_else(pc.is_in(column, value_set=pa.array(words, column.type)), plain, column)
    return column


def cast_each(column: pa.Array, type_: pa.DataType, cast: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return a column as `type_`. A value for which `cast` raises `pa.ArrowInvalid` becomes null."""
    try:
        return cast(column, type_)
    except pa.ArrowInvalid:
        different = column.unique()
        return _cast_halves(different, type_, cast).take(pc.index_in(column, value_set=different))


def _cast_halves(column: pa.Array, type_: pa.DataType, cast: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Do the same. What cannot be cast is halved, so few misfits among many values cost few casts."""
    try:
        return cast(column, type_)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, type_)
        half = len(column) // 2
        return pa.concat_arrays(
            [_cast_halves(column.slice(0, half), type_, cast), _cast_halves(column.slice(half), type_, cast)]
        )


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast text, or raise `pa.ArrowInvalid` if any cell does not fit."""
    if pa.types.is_duration(type_):
        return column.cast(pa.int64()).cast(type_)
    if pa.types.is_time(type_):
        day = pc.binary_join_element_wise(_DAY_ONE, pc.utf8_rtrim(column, characters="."), "")
        return day.cast(pa.timestamp(type_.unit)).cast(type_)
    if pa.types.is_timestamp(type_):
        return _cast_moments(column, type_)
    values = column.cast(type_)
    if pa.types.is_decimal(type_):
        values.validate(full=True)  # they may have more digits than the type
    return values


def _cast_moments(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        other = column.cast(pa.timestamp(type_.unit, None if type_.tz else "UTC"))
        return other.cast(type_) if type_.tz is None else pc.assume_timezone(other, "UTC").cast(type_)


def readable_schema(layout: Layout) -> pa.Schema:
    """Return the columns to read by a layout's schema. `RequestError` if its format cannot hold one of the types."""
    schema = project(schema_from_names(layout.schema or {}), layout.columns)
    cell, holds = ("CSV cell", is_castable) if layout.format == "csv" else ("JSON value", _is_json)
    for field in schema:
        if not holds(field.type):
            others = "a jsonl or arrow" if layout.format == "csv" else "an arrow or packed"
            raise RequestError(
                f"a {cell} can not hold {field.type}",
                where=f"schema.{field.name}",
                hint=f"Read it as string, or keep such columns in {others} file",
            )
        if has_large_list(field.type):
            raise RequestError(
                f"a list of objects with more than {MAX_LIST_VALUES} values",
                where=f"schema.{field.name}",
                hint="Read it as string, which is its JSON text, or name fewer of its fields",
            )
    return schema


def _is_json(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_) or pa.types.is_struct(type_):
        return all(_is_json(type_.field(index).type) for index in range(type_.num_fields))
    unreadable = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time, pa.types.is_duration)
    return is_castable(type_) and not any(test(type_) for test in unreadable)
