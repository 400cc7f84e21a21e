"""Casts columns of text to a type. A cell that does not fit becomes null.

Blanks around a value do not count, and a word for a missing value (`kinds.NULLS`) is null, except in columns of text. A
moment without a zone is UTC in a column with a zone, and a column without one takes moments with a zone as UTC.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.kinds import INFINITIES, MINUS_INFINITIES, NANS, NULLS
from fastflight.tables.schemas import holds_decimals

TEXT = pa.string()
_DAY_ONE = "1970-01-01T"


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_castable(type_: pa.DataType) -> bool:
    """Whether text can be cast to this type."""
    if pa.types.is_null(type_):
        return True
    try:
        _cast(pa.nulls(0, TEXT), type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return not pa.types.is_nested(type_)


def cast(column: pa.Array, type_: pa.DataType, decimal: str = ".") -> tuple[pa.Array, pa.Array]:
    """Return a column of text as `type_`, and the cells that do not fit, which are null."""
    none = column.slice(0, 0)
    if column.type == type_:
        return column, none
    if pa.types.is_null(type_):
        return pa.nulls(len(column)), _misfits(column, _cleaned(column), pa.nulls(len(column)))
    try:
        return _cast(column, type_), none
    except pa.ArrowInvalid:
        pass
    if is_text(type_):
        return column.cast(type_), none
    cleaned = _cleaned(column)
    if pa.types.is_floating(type_):
        cleaned = _plain_words(cleaned)
    if decimal != "." and (pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        cleaned = pc.replace_substring_regex(cleaned, r"^([+-]?[0-9]*)" + re.escape(decimal) + r"([0-9])", r"\1.\2")
    try:
        values = _cast(cleaned, type_)
    except pa.ArrowInvalid:
        values = _cast_each(cleaned, type_)
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


def _cast_each(cleaned: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast each distinct cell on its own. A cell that cannot be cast becomes null."""
    fitting, values = [], []
    for index, cell in enumerate(different := cleaned.unique().drop_null()):
        try:
            values.append(_cast(different.slice(index, 1), type_))
        except pa.ArrowInvalid:
            continue
        fitting.append(cell)
    if not fitting:
        return pa.nulls(len(cleaned), type_)
    return pc.take(pa.concat_arrays(values), pc.index_in(cleaned, value_set=pa.array(fitting, cleaned.type)))


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
    if holds_decimals(type_):
        values.validate(full=True)
    return values


def _cast_moments(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        other = column.cast(pa.timestamp(type_.unit, None if type_.tz else "UTC"))
        return other.cast(type_) if type_.tz is None else pc.assume_timezone(other, "UTC").cast(type_)
