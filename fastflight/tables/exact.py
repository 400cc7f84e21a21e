"""Whether pyarrow has read the numbers in JSON lines exactly, and which numbers a double gives back."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.kinds import Kind, kind_of

_Places = np.ndarray[Any, np.dtype[np.intp]]

# Numbers of so many characters have at most 15 digits, which a double always gives back.
SHORT_NUMBER = 15


def without_exact(cells: pa.Array, doubles: pa.Array) -> pa.Array:
    """Return those of `cells`, which hold the text of `doubles`, that are not surely the shortest text of their double.

    Arrow writes the shortest text, but places the point and the exponent in its own way: where the texts differ, the
    digits are compared. Two numbers with the same digits and the same nearest double are the same number.
    """
    texts = doubles.cast(pa.string())
    differ = pc.not_equal(texts, cells)
    cells, texts = cells.filter(differ), texts.filter(differ)
    same_digits = pc.equal(_digits(cells), _digits(texts))
    return cells.filter(pc.invert(pc.and_(same_digits, pc.match_substring_regex(cells, _FRACTION))))


# A number with a point or an exponent, or both.
_FRACTION = r"\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+|(?:\.[0-9]+)?[eE][+-]?[0-9]{1,5})\z"


def _digits(numbers: pa.Array) -> pa.Array:
    """Return the digits of numbers, without zeros at both ends."""
    mantissas = pc.list_element(pc.split_pattern(pc.ascii_lower(numbers), "e", max_splits=1), 0)
    return pc.ascii_trim(pc.replace_substring(mantissas, ".", ""), characters="-0")


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
