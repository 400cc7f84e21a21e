"""Finds the kinds of all cells in a column of text, and the values that they are.

Most cells are plain: a cast and a few comparisons of bytes prove what they are. `kind_of` looks only at the others.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.casting import cast
from fastflight.tables.exact import SHORT_NUMBER, without_exact
from fastflight.tables.kinds import NULLS, Kind, kind_of_whole, kinds_of, type_of

_Flags = np.ndarray[Any, np.dtype[np.bool_]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Places = np.ndarray[Any, np.dtype[np.intp]]

# Characters of the numbers of a column, on average, that are probably too long to be exact whatever their digits.
_LONG_NUMBERS = SHORT_NUMBER + len("e-06")
# Cells that show what the others of a column probably are.
_FIRST_CELLS = 64
_WHOLE = Kind.WHOLE | Kind.NEGATIVE | Kind.BIG | Kind.NEGATIVE_BIG | Kind.HUGE
_NUMBER = _WHOLE | Kind.FLOAT | Kind.NOT_FINITE
_TIME = Kind.DATE | Kind.MOMENT | Kind.ZONED
# Microseconds from 1970 to the first and last moment whose kind is not `FAR`.
_NEAR = (-292 * 365 * 86_400_000_000, 291 * 365 * 86_400_000_000)

_FINE = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def learn_column(column: pa.Array, known: Kind, decimal: str = ".") -> tuple[Kind, pa.Array]:
    """Return `known` and the kinds of the cells of a column, and the column as the type of these kinds."""
    if not known & ~Kind.SPELLED:
        known |= kinds_of(column.slice(0, _FIRST_CELLS).drop_null().to_pylist(), decimal)
    if Kind.TEXT in known:
        return Kind.TEXT, column
    values = None
    if plain := _cast_plain(column, known, decimal):
        values, doubtful = plain
        known |= kinds_of(doubtful.unique().to_pylist())
    else:
        # First the cells that are likely to be text: then the others need not be looked at.
        likely = pc.match_substring_regex(column, r"[^-+0-9.,:eETZ ]")
        for cells in (column.filter(likely), column.drop_null()):
            known |= kinds_of(cells.unique().to_pylist(), decimal)
            if Kind.TEXT in known:
                break
    if Kind.TEXT in known:
        return Kind.TEXT, column
    if values is None or values.type != type_of(known):
        values = cast(column, type_of(known), decimal)[0]
    return (known | kinds_of_integers(values) if pa.types.is_integer(values.type) else known), values


def _cast_plain(column: pa.Array, known: Kind, decimal: str) -> tuple[pa.Array, pa.Array] | None:
    """Return a column of numbers or times as the type of the known kinds, and the cells that may be of other kinds.

    None if it holds other values, or if a cell cannot be cast.
    """
    type_ = type_of(known)
    is_time = not known & ~(_TIME | Kind.SPELLED)
    is_number = not known & ~(_NUMBER | Kind.SPELLED)
    if not known & ~Kind.SPELLED or pa.types.is_string(type_) or not (is_time or is_number):
        return None
    cells = column
    if Kind.SPELLED in known:
        cells = pc.if_else(pc.is_in(column, value_set=pa.array(NULLS, column.type)), None, column)
    if decimal != "." and Kind.FLOAT in known:
        if pc.any(pc.match_substring(cells, ".")).as_py():
            return None
        cells = pc.replace_substring(cells, decimal, ".")
    try:
        values = cells.cast(type_)
    except pa.ArrowInvalid:
        return None
    present, numbers = (cells.drop_null(), values.drop_null()) if cells.null_count else (cells, values)
    plain = (_plain_times if is_time else _plain_numbers)(present, numbers)
    if plain.all():
        return values, present.slice(0, 0)
    if plain.any():
        present, numbers = present.filter(pa.array(~plain)), numbers.filter(pa.array(~plain))
    return values, without_exact(present, numbers) if pa.types.is_floating(type_) else present


def kinds_of_integers(column: pa.Array) -> Kind:
    """Return the kinds of the smallest and the largest number, which decide the type."""
    ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
    return reduce(or_, map(kind_of_whole, ends), Kind(0))


def _plain_numbers(cells: pa.Array, values: pa.Array) -> _Flags:
    """Return for each cell, all of which are numbers to a cast, whether its number is exact for sure."""
    starts, lengths, data = _bytes_of(cells)
    if not len(cells) or not lengths.all() or (pa.types.is_floating(values.type) and lengths.mean() > _LONG_NUMBERS):
        return np.zeros(len(cells), np.bool_)
    first = data[starts]
    negative = first == ord("-")
    if negative.any():
        starts, lengths = starts + negative, lengths - negative
        first = data.take(starts, mode="clip")
    plain: _Flags = first - np.uint8(ord("1")) < 9
    zeros = np.flatnonzero(first == ord("0"))
    if pa.types.is_integer(values.type):
        plain[zeros] = (lengths[zeros] == 1) & ~negative[zeros]
        return plain
    plain[zeros] = (lengths[zeros] == 1) | (data.take(starts[zeros] + 1, mode="clip") == ord("."))
    exponents = np.flatnonzero((data[starts[0] : starts[-1] + lengths[-1]] | 0x20) == ord("e")) + starts[0]
    with_exponent = np.searchsorted(starts, exponents, "right") - 1
    digits = lengths.copy()
    digits[with_exponent] = exponents - starts[with_exponent]
    plain &= digits <= SHORT_NUMBER
    # Up to two digits of an exponent are far from the limits of a double.
    signed = np.isin(data[exponents + 1], np.frombuffer(b"+-", np.uint8))
    plain[with_exponent] &= (lengths - digits)[with_exponent] - signed <= len("e99")
    return plain


def _plain_times(cells: pa.Array, values: pa.Array) -> _Flags:
    """Return for each cell, all of which are times to a cast, whether it is a date, or a moment."""
    if not len(cells):
        return np.zeros(0, np.bool_)
    starts, lengths, data = _bytes_of(cells)
    plain: _Flags = lengths == len("2026-01-31")
    if not pa.types.is_date32(values.type):
        if values.type.tz is not None:
            ends = starts + lengths
            colon = data.take(ends - len(":59"), mode="clip") == ord(":")
            is_letter = data.take(ends - len("Z"), mode="clip") == ord("Z")
            lengths = lengths - np.where(is_letter, len("Z"), np.where(colon, len("+23:59"), len("+2359")))
            sign = data.take(starts + lengths, mode="clip")
            plain = is_letter | (sign == ord("+")) | (sign == ord("-"))
        clock = (lengths >= len("2026-01-31 23:59:59")) & (lengths <= len("2026-01-31 23:59:59.123456"))
        clock &= data.take(starts + len("2026-01-31 23:59"), mode="clip") == ord(":")
        clock |= lengths == len("2026-01-31 23:59")
        clock &= data.take(starts + len("2026-01-31 23"), mode="clip") == ord(":")
        plain = plain | clock if values.type.tz is None else plain & clock
    ends = pc.min_max(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())).as_py()
    near = _NEAR[0] < ends["min"] and ends["max"] < _NEAR[1] and values.type not in _FINE
    return plain if near else np.zeros(len(cells), np.bool_)


def _bytes_of(cells: pa.Array) -> tuple[_Places, _Places, _Bytes]:
    """Return the starts and lengths of the cells of an array without nulls, and the bytes that the starts count."""
    _, ends, data = cells.buffers()
    offsets = np.frombuffer(ends, np.int32)[cells.offset : cells.offset + len(cells) + 1].astype(np.intp)
    return offsets[:-1], np.diff(offsets), np.frombuffer(data or b"\0", np.uint8)
