"""The rule that decides the type of a column: the narrowest that holds every one of its values exactly.

Each value has a `Kind`. The kinds of all values of a column decide its type (`type_of`), whatever their order: `null`,
`bool`, `int64`, `uint64`, `double`, `date32`, `timestamp` or `string`. A number is of a kind only if the type gives it
back unchanged: `007`, `12e456` and `0.12345678901234567890` are text, and so are doubles beside whole numbers beyond
2**53. Times become `timestamp[us]` (`[us, UTC]` with a zone, `[ns]` with more than six digits of a second).

`SPELLED` are words for a missing value, such as `N/A`. They are null in a column of any type but text, where they stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from enum import IntFlag, auto
from functools import lru_cache

import pyarrow as pa

NULLS = ("None", "none", "null", "NULL", "Null", "N/A", "n/a", "NA", "#N/A", "--")
NANS = ("nan", "NaN", "NAN", "-nan", "-NaN", "-NAN", "+nan")
INFINITIES = ("inf", "Inf", "INF", "+inf", "+Inf", "+INF", "Infinity", "+Infinity", "infinity")
MINUS_INFINITIES = ("-inf", "-Inf", "-INF", "-Infinity", "-infinity")
BOOLS = ("true", "false", "True", "False", "TRUE", "FALSE")

# Longer numbers are identifiers, and testing them would take long.
LONGEST_NUMBER = 400
# Up to this size, every whole number is exact in a double.
_EXACT = 2**53
# The years all of whose days fit into 64 bits of nanoseconds.
_NANOSECOND_YEARS = range(1678, 2262)


class Kind(IntFlag):
    """What a value is. The kinds of a column are joined with `|`; a missing value has none."""

    SPELLED = auto()  # a word for a missing value
    BOOL = auto()
    WHOLE = auto()  # 0 to 2**53
    NEGATIVE = auto()  # -2**53 to -1
    BIG = auto()  # above, within int64
    NEGATIVE_BIG = auto()  # below, within int64
    HUGE = auto()  # above int64, within uint64
    FLOAT = auto()  # a double gives it back
    NOT_FINITE = auto()
    DATE = auto()
    MOMENT = auto()
    ZONED = auto()  # a moment with a zone
    FINE = auto()  # a moment with more than six digits of a second
    FAR = auto()  # a moment or date that nanoseconds do not reach
    TEXT = auto()


_INT64 = Kind.WHOLE | Kind.NEGATIVE | Kind.BIG | Kind.NEGATIVE_BIG
_UINT64 = Kind.WHOLE | Kind.BIG | Kind.HUGE
_DOUBLE = Kind.WHOLE | Kind.NEGATIVE | Kind.FLOAT | Kind.NOT_FINITE
_TIME = Kind.DATE | Kind.MOMENT | Kind.FINE | Kind.FAR
_ZONED = Kind.ZONED | Kind.FINE | Kind.FAR


@lru_cache(maxsize=1024)
def type_of(kinds: Kind) -> pa.DataType:
    """Return the narrowest type that holds values of these kinds."""
    kinds &= ~Kind.SPELLED
    if not kinds:
        return pa.null()
    if kinds == Kind.BOOL:
        return pa.bool_()
    for allowed, type_ in ((_INT64, pa.int64()), (_UINT64, pa.uint64()), (_DOUBLE, pa.float64())):
        if not kinds & ~allowed:
            return type_
    if not kinds & ~(Kind.DATE | Kind.FAR):
        return pa.date32()
    if not (Kind.FINE in kinds and Kind.FAR in kinds):
        unit = "ns" if Kind.FINE in kinds else "us"
        if not kinds & ~_TIME:
            return pa.timestamp(unit)
        if not kinds & ~_ZONED:
            return pa.timestamp(unit, "UTC")
    return pa.string()


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII).fullmatch
_FLOAT = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?", re.ASCII).fullmatch
_SIGNED_WHOLE = re.compile(r"\+[0-9]+", re.ASCII).fullmatch
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?P<time>[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]{1,9}))?)?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
).fullmatch
_WORDS = {
    **dict.fromkeys(NULLS, Kind.SPELLED),
    **dict.fromkeys((*NANS, *INFINITIES, *MINUS_INFINITIES), Kind.NOT_FINITE),
    **dict.fromkeys(BOOLS, Kind.BOOL),
}


@lru_cache(maxsize=4096)  # the cells of a file's first lines are looked at several times
def kind_of(cell: str, decimal: str = ".") -> Kind:
    """Return the kind of a cell that is not null. Blanks around a value do not count, and blanks alone are none."""
    cell = cell.strip(" \t")
    if not cell:
        return Kind.SPELLED
    if word := _WORDS.get(cell):
        return word
    if len(cell) > LONGEST_NUMBER:
        return Kind.TEXT
    if _WHOLE(cell):
        return kind_of_whole(int(cell)) if cell != "-0" else Kind.FLOAT
    if decimal != ".":
        if "." in cell:
            return kind_of_time(cell)
        cell = cell.replace(decimal, ".")
    if _FLOAT(cell) and not _SIGNED_WHOLE(cell):
        return Kind.FLOAT if _is_exact(cell) else Kind.TEXT
    return kind_of_time(cell)


def kind_of_whole(number: int) -> Kind:
    """Return the kind of a whole number."""
    if abs(number) <= _EXACT:
        return Kind.WHOLE if number >= 0 else Kind.NEGATIVE
    if number < 0:
        return Kind.NEGATIVE_BIG if number >= -(2**63) else Kind.TEXT
    return Kind.BIG if number < 2**63 else Kind.HUGE if number < 2**64 else Kind.TEXT


def _is_exact(number: str) -> bool:
    """Whether a double gives this number back: as its shortest text, or printed with as many decimals.

    Many programs print more digits than a double has, such as numpy's `savetxt` and C's `%.17g`.
    """
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    value = float(number)
    printed = f"{value:.{decimals}{'e' if exponent else 'f'}}"
    return printed == number or Decimal(number) in (Decimal(repr(value)), Decimal(printed))


def kind_of_time(text: str) -> Kind:
    """Return the kind of a date or moment in ISO 8601; `TEXT` for any other text."""
    match = _MOMENT(text)
    if match is None:
        return Kind.TEXT
    try:
        year = (datetime.fromisoformat(text) if match["time"] else date.fromisoformat(text)).year
    except ValueError:
        return Kind.TEXT
    kind = Kind.DATE if not match["time"] else Kind.ZONED if match["zone"] else Kind.MOMENT
    if len(match["fraction"] or "") > 6:
        kind |= Kind.FINE
    return kind if year in _NANOSECOND_YEARS else kind | Kind.FAR


def is_value(cell: str, decimal: str = ".") -> bool:
    """Whether a cell holds a number, a time or a truth value, as opposed to text or nothing."""
    return bool(cell) and kind_of(cell, decimal) not in (Kind.TEXT, Kind.SPELLED)


def kinds_of(cells: Iterable[str], decimal: str = ".") -> Kind:
    """Return the kinds of cells that are not empty."""
    kinds = Kind(0)
    for cell in cells:
        kinds |= kind_of(cell, decimal)
        if Kind.TEXT in kinds:
            return Kind.TEXT
    return kinds
