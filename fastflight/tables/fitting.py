"""Tests whether a CSV cell or a JSON value can be read as a type, without pyarrow's readers.

pyarrow's readers accept or refuse a block of rows as a whole, and start a thread for each block: finding the bad rows
with them alone takes a hundred times as long as reading the good ones. The tests here accept every value that a reader
accepts, and almost no other; the readers decide in the end. Both readers convert text as a cast does, except for the
special cases below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fastflight.tables.bare import one_text

Test = Callable[[Any], object]

_BLANKS = " \t"
_DAY_SECONDS = 24 * 60 * 60
# A cell that matches WHOLE or NUMBER is a number; otherwise a cast decides. A cell that does not match the patterns of
# times is no time; otherwise a cast decides.
WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII).fullmatch
NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?", re.ASCII).fullmatch
_MOMENT = re.compile(r"[ \t]*[0-9][0-9TZ:+. -]{3,40}[ \t]*", re.ASCII).fullmatch
_TIME_OF_DAY = re.compile(r"[ \t]*[0-9]{2}:[0-9]{2}(:[0-9.]{2,12})?[ \t]*", re.ASCII).fullmatch


def cell_test(type_: pa.DataType, true: Sequence[str], false: Sequence[str]) -> Test:
    """Return a test for the text of CSV cells. `true` and `false` are the cells that mean True and False."""
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _always
    if pa.types.is_null(type_):
        return _never
    if pa.types.is_boolean(type_):
        return frozenset([*true, *false]).__contains__
    if pa.types.is_decimal(type_):
        return lambda cell: _is_decimal(cell.strip(_BLANKS), type_)
    if pa.types.is_duration(type_):
        return lambda cell: WHOLE(cell) or _casts(cell.strip(_BLANKS), pa.int64())
    if pa.types.is_time(type_):
        moment = pa.timestamp(type_.unit)
        return lambda cell: _TIME_OF_DAY(cell) and _casts("1970-01-01T" + cell.strip(_BLANKS).rstrip("."), moment)
    if pa.types.is_timestamp(type_):
        return lambda cell: _MOMENT(cell) and _casts(cell, type_)
    if pa.types.is_date(type_):
        return lambda cell: _MOMENT(cell) and _casts(cell.strip(_BLANKS), type_)
    known = {pa.int64(): WHOLE, pa.float64(): NUMBER}.get(type_, _never)
    return lambda cell: known(cell) or _casts(cell.strip(_BLANKS), type_)


class Number(float):
    """A JSON number with a point or an exponent. A decimal column is tested with its text, which is exact."""

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def value_test(type_: pa.DataType, *, nested: bool = False) -> Test:
    """Return a test for JSON values that were parsed with `parse_float=Number`. Null fits every type."""
    if pa.types.is_boolean(type_):
        return lambda value: value is None or isinstance(value, bool)
    if pa.types.is_integer(type_):
        least = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
        span = range(least, least + 2**type_.bit_width)
        return lambda value: value is None or (type(value) is int and value in span)
    if pa.types.is_floating(type_):
        return lambda value: value is None or type(value) in (int, float, Number)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return lambda value: value is None or isinstance(value, str)
    if pa.types.is_null(type_):
        return lambda value: value is None
    if pa.types.is_list(type_):
        inner = value_test(type_.value_type, nested=True)
        return lambda value: value is None or (isinstance(value, list) and all(map(inner, value)))
    if pa.types.is_struct(type_):
        tests = [(field.name, value_test(field.type, nested=True)) for field in type_]
        return lambda value: (
            value is None or (isinstance(value, dict) and all(test(value.get(name)) for name, test in tests))
        )
    if nested:
        return _always
    if pa.types.is_decimal(type_):
        return lambda value: (
            value is None
            or (not isinstance(value, bool | list | dict) and _is_decimal(str(getattr(value, "text", value)), type_))
        )
    if pa.types.is_timestamp(type_):
        return lambda value: value is None or (isinstance(value, str) and _moment(value, type_.unit) is not None)
    if pa.types.is_date(type_):
        return lambda value: value is None or (isinstance(value, str) and _is_midnight(_moment(value, "s")))
    return _always


def _always(value: object) -> bool:
    return True


def _never(value: object) -> bool:
    return False


def _cast(text: str, type_: pa.DataType) -> pa.Array | None:
    try:
        return one_text(text).cast(type_)
    except (pa.ArrowInvalid, UnicodeEncodeError):  # half a surrogate pair
        return None


def _casts(text: str, type_: pa.DataType) -> bool:
    return _cast(text, type_) is not None


def _is_decimal(text: str, type_: pa.DataType) -> bool:
    """Return whether `text` is a decimal that fits. Like pyarrow's readers, count trailing zeros as digits."""
    if not _casts(text, type_):
        return False
    _, digits, exponent = Decimal(text).as_tuple()
    return bool(len(digits) + max(int(exponent), 0) <= type_.precision)


def _moment(text: str, unit: str) -> pa.Array | None:
    """Return a time read from JSON, or None. The text may name a zone whether the column has one or not."""
    moment = _cast(text, pa.timestamp(unit))
    return _cast(text, pa.timestamp(unit, "UTC")) if moment is None else moment


def _is_midnight(seconds: pa.Array | None) -> bool:
    return seconds is not None and seconds.cast(pa.int64())[0].as_py() % _DAY_SECONDS == 0
