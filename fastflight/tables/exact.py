"""Tells which numbers a double gives back: much quicker than by writing every double as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.kinds import Kind, kind_of

Flags = np.ndarray[Any, np.dtype[np.bool_]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Places = np.ndarray[Any, np.dtype[np.intp]]

# Numbers of so many characters have at most 15 digits, which a double always gives back.
SHORT_NUMBER = 15
# Half an ulp, in the units of `_are_shortest`, is below 2**63 for so many digits after the point.
_MOST_DIGITS = 18
_POWERS = 10 ** np.arange(_MOST_DIGITS + 1)
_MANTISSA_BITS, _EXPONENT_OF_ONE_ULP = 52, 1075
_IMPLICIT_BIT, _FRACTION, _WITHOUT_SIGN = 1 << 52, (1 << 52) - 1, (1 << 63) - 1
# Comparisons of rounded numbers leave this share in doubt.
_DOUBT = 1e-9


def cell_bytes(cells: pa.Array) -> tuple[_Places, _Places, _Bytes]:
    """Return the starts and lengths of the cells of an array without nulls, and the bytes that the starts count."""
    _, ends, data = cells.buffers()
    offsets = np.frombuffer(ends, np.int32)[cells.offset : cells.offset + len(cells) + 1].astype(np.intp)
    return offsets[:-1], np.diff(offsets), np.frombuffer(data or b"\0", np.uint8)


def without_exact(cells: pa.Array, doubles: pa.Array) -> pa.Array:
    """Return those of `cells`, which hold the text of `doubles`, that are not the shortest text of their double."""
    if not len(cells):
        return cells
    inexact = ~_are_shortest(cells, doubles)
    if not inexact.any():
        return cells.slice(0, 0)
    if not inexact.all():
        cells, doubles = cells.filter(pa.array(inexact)), doubles.filter(pa.array(inexact))
    return cells.filter(pc.not_equal(doubles.cast(pa.string()), cells))


def _are_shortest(cells: pa.Array, doubles: pa.Array) -> Flags:
    """Return for which cells of the form 12.3456 it is easily proved.

    A cell is m / 10**k, and its double M / 2**s. Their distance, multiplied by 10**k * 2**s, is computed without
    rounding: it is below 2**63, so the overflows of its terms cancel out. The cell is the shortest text of the double
    if no number with one digit less is within half an ulp of the double, and none with as many digits is nearer to it.
    """
    nothing = np.zeros(len(cells), np.bool_)
    starts, lengths, data = cell_bytes(cells)
    text = data[starts[0] : starts[-1] + lengths[-1]]
    starts = starts - starts[0]
    ends = starts + lengths
    points = np.flatnonzero(text == ord("."))
    if len(points) != len(cells) or (points < starts).any() or (points >= ends).any():
        return nothing
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(lengths - 1 - (text[starts] == ord("-")), out=offsets[1:])
    digits = text[text - np.uint8(ord("0")) < 10]
    if offsets[-1] != len(digits):
        return nothing
    try:
        m = pa.StringArray.from_buffers(len(cells), pa.py_buffer(offsets), pa.py_buffer(digits)).cast(pa.int64())
    except pa.ArrowInvalid:
        return nothing
    k = ends - points - 1
    bits = doubles.to_numpy().view(np.int64) & _WITHOUT_SIGN
    s = _EXPONENT_OF_ONE_ULP - (bits >> _MANTISSA_BITS)
    fraction = bits & _FRACTION
    easy = (k <= _MOST_DIGITS) & (s > 0) & (s < 63) & (fraction != 0)
    if not easy.all():
        k, s = k * easy, s * easy
    ulp = _POWERS[k]
    unit = (np.int64(1) << s).astype(float)  # one in the last digit
    distance = ((m.to_numpy() << s) - (fraction | _IMPLICIT_BIT) * ulp) / unit
    last_digit = text[ends - 1] - np.uint8(ord("0"))
    nearest_shorter = np.minimum(last_digit - distance, 10 - last_digit + distance)
    shortest: Flags = easy & (np.abs(distance) < 0.5 - _DOUBT) & (nearest_shorter > ulp / unit * (0.5 + _DOUBT))
    return shortest


def are_exact(data: bytes, batch: pa.RecordBatch) -> bool:
    """Whether the numbers in lines of JSON are for sure those of the columns that pyarrow has read from them."""
    if has_negative_zero(data):
        return False
    doubles = [each for column in batch.columns for each in _columns_of_doubles(column)]
    if not doubles:
        return True
    for column in doubles:
        ends = pc.min_max(column.filter(pc.is_finite(column))).as_py()
        if ends["min"] is not None and not -(2**53) < ends["min"] <= ends["max"] < 2**53:
            return False  # a whole number may be beyond those that a double holds
    if any(mark in data and re.search(mark + rb"[0-9]{3}", data) for mark in (b"e-", b"E-")):
        return False  # it may be too small for a double
    if any(pc.any(pc.is_inf(column)).as_py() for column in doubles) and re.search(rb"[eE]\+?[0-9]{3}", data):
        return False
    places, numbers = _long_numbers(data)
    if not len(numbers):
        return True
    has_exponent = np.frombuffer(data, np.uint8).take(places[1::2], mode="clip") | 0x20 == ord("e")
    plain = numbers.filter(pc.and_(pa.array(~has_exponent), pc.match_substring(numbers, ".")))
    try:
        inexact = without_exact(plain, plain.cast(pa.float64())).unique().to_pylist()
    except pa.ArrowInvalid:  # some are part of a text
        return False
    inexact += [_NUMBER.match(data, start)[0].decode() for start in places[0::2][has_exponent]]  # type: ignore[index]
    return all(kind_of(number) == Kind.FLOAT for number in inexact)


_NUMBER = re.compile(rb"[0-9.eE+-]+")
# The fewest characters of a number with a point and 16 digits.
_LONG = SHORT_NUMBER + 2


def _long_numbers(data: bytes) -> tuple[_Places, pa.Array]:
    """Find the numbers of at least `_LONG` characters, without exponents. Return where they start and end, in turn,
    and their text.
    """
    text = np.frombuffer(data, np.uint8)
    found = text - np.uint8(ord("-")) <= ord("9") - ord("-")
    done = 1  # found[i]: whether as many characters from i on are those of a number
    while done < _LONG:
        step = min(done, _LONG - done)
        found = found[:-step] & found[step:]
        done += step
    places = np.flatnonzero(np.diff(found, prepend=False, append=False))
    if not len(places):
        return places, pa.nulls(0, pa.string())
    places[1::2] += _LONG - 1
    offsets = pa.py_buffer(places.astype(np.int32))
    # The numbers, and the text between each two of them.
    pieces = pa.StringArray.from_buffers(len(places) - 1, offsets, pa.py_buffer(data))
    return places, pieces.take(pa.array(np.arange(0, len(places), 2)))


def _columns_of_doubles(column: pa.Array) -> list[pa.Array]:
    """Return the columns of doubles in a column."""
    if pa.types.is_list(column.type):
        return _columns_of_doubles(column.flatten())
    if pa.types.is_struct(column.type):
        return [each for inner in column.flatten() for each in _columns_of_doubles(inner)]
    return [column] if pa.types.is_floating(column.type) else []


def has_negative_zero(data: bytes) -> bool:
    """Whether JSON may hold the whole number -0, which an integer does not give back."""
    return b"-0" in data and re.search(rb"-0(?![.0-9])", data) is not None
