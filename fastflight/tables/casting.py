"""Casts columns of text to a type, and columns to wider types. A cell that does not fit becomes null.

Blanks around a value do not count, and a word for a missing value (`kinds.NULLS`) is null, except in columns of text. A
moment without a zone is UTC in a column with a zone, and a column without one takes moments with a zone as UTC.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import RequestError
from fastflight.tables.kinds import BOOLS, INFINITIES, MINUS_INFINITIES, NANS, NULLS
from fastflight.tables.schemas import MAX_LIST_VALUES, has_large_list, holds_decimals, project, schema_from_names

if TYPE_CHECKING:
    from fastflight.tables.codec import Layout

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


_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII).fullmatch
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?", re.ASCII).fullmatch
_TRUTH = {word: word[0] in "tT" for word in BOOLS} | {"1": True, "0": False}


def _whole(cell: str) -> int:
    if not _WHOLE(cell):
        raise ValueError
    return int(cell)


def _unsigned(cell: str) -> int:
    if cell.startswith("-"):
        raise ValueError
    return _whole(cell)


def _number(cell: str) -> float:
    if not _NUMBER(cell):
        raise ValueError
    return float(cell)


# The values of plain cells, as a cast gives them. Any other cell raises `ValueError` or `KeyError`.
_PLAIN: dict[pa.DataType, Callable[[str], Any]] = {
    **dict.fromkeys((pa.int64(), pa.int32(), pa.int16(), pa.int8()), _whole),
    **dict.fromkeys((pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8()), _unsigned),
    pa.float64(): _number,
    pa.bool_(): _TRUTH.__getitem__,
    pa.string(): str,
}
# Not by `pa.array`, with which Arrow imports pandas: commands load this module.
_NO_CELLS = pa.nulls(0, TEXT)


def cast(cells: pa.Array | Sequence[str | None], type_: pa.DataType, decimal: str = ".") -> tuple[pa.Array, pa.Array]:
    """Return a column of text as `type_`, and the cells that do not fit, which are null.

    A list of cells is converted in Python if all of them are plain: for a few, calls of Arrow's functions take longer.
    """
    if isinstance(cells, pa.Array):
        return _cast_column(cells, type_, decimal)
    if plain := _PLAIN.get(type_):
        with contextlib.suppress(ValueError, KeyError, OverflowError):  # `pa.ArrowInvalid` is a ValueError
            return pa.array([None if cell is None else plain(cell) for cell in cells], type_), _NO_CELLS
    return _cast_column(pa.array(cells, TEXT), type_, decimal)


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
    if holds_decimals(type_):
        values.validate(full=True)
    return values


def _cast_moments(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        other = column.cast(pa.timestamp(type_.unit, None if type_.tz else "UTC"))
        return other.cast(type_) if type_.tz is None else pc.assume_timezone(other, "UTC").cast(type_)


# The caller of `widen` knows that all values fit: that no whole number has more digits than a double, for example.
_WIDER = {
    (pa.int64(), pa.uint64()),
    (pa.int64(), pa.float64()),
    (pa.date32(), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("ns")),
    (pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
}


def can_widen(narrow: pa.Schema, wide: pa.Schema) -> bool:
    """Whether `widen` can turn batches of `narrow` into batches of `wide`."""
    pairs = [(narrow.field(name).type, wide.field(name).type) for name in wide.names if name in narrow.names]
    return all(one == other or pa.types.is_null(one) or (one, other) in _WIDER for one, other in pairs)


def widen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with the columns and types of `schema`. Columns that it does not have are null."""
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        is_missing = place < 0 or pa.types.is_null(batch.column(place).type)
        columns.append(pa.nulls(batch.num_rows, field.type) if is_missing else batch.column(place).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


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
