"""Regular expressions of JSON rows like some that were parsed: the same keys, and values of kinds known for them.

Rows that match need not be parsed to find the types of their columns: that takes a tenth of the time.
"""

from __future__ import annotations

import re
from typing import Any

from fastflight.tables.kinds import Kind, pattern_of
from fastflight.tables.shapes import Shape

# Numbers of at most 15 digits, as JSON writes them.
_NUMBERS = {
    Kind.WHOLE: "0|[1-9][0-9]{0,14}",
    Kind.NEGATIVE: "-[1-9][0-9]{0,14}",
    Kind.BIG: "[1-9][0-9]{16,17}|[1-8][0-9]{18}",
    Kind.FLOAT: (
        r"-?(?:(?:0|[1-9][0-9]{0,7})\.[0-9]{1,7}|[1-9][0-9]{8,10}\.[0-9]{1,4}|(?:0|[1-9][0-9]{0,2})\.[0-9]{8,12})"
    ),
    Kind.BOOL: "true|false",
    Kind.NOT_FINITE: "NaN|nan|-?inf|-?Infinity",
}
_TIMES = Kind.DATE | Kind.MOMENT | Kind.ZONED
_TEXT = r'"[^"\\\x00-\x1f]*"'
_GAP = "[ ]?"
_PLAIN_KEY = re.compile(r"[ !#-\[\]-~]*").fullmatch


def row_template(row: dict[str, Any], shapes: dict[str, Shape]) -> str:
    """Return a regular expression of rows with the keys of `row` in its order; empty if there is none."""
    return _object(row, shapes) or ""


def _object(row: dict[str, Any], shapes: dict[str, Shape]) -> str | None:
    members = []
    for name, value in row.items():
        pattern = _value(value, shapes[name])
        if pattern is None or not _PLAIN_KEY(name):
            return None
        members.append(f'"{re.escape(name)}"{_GAP}:{_GAP}{pattern}')
    return r"\{" + _GAP + f"{_GAP},{_GAP}".join(members) + _GAP + r"\}"


def _value(value: Any, shape: Shape) -> str | None:
    if isinstance(value, dict):
        return _object(value, shape.fields or {})
    if isinstance(value, list):
        if shape.items is None or shape.items.items is not None or shape.items.fields is not None:
            return None
        item = _scalar(shape.items)
        return rf"\[{_GAP}(?:{item}(?:{_GAP},{_GAP}{item})*)?{_GAP}\]"
    return None if shape.too_large else _scalar(shape)


def _scalar(shape: Shape) -> str:
    forms = ["null", *(form for kind, form in _NUMBERS.items() if kind in shape.kinds)]
    if Kind.TEXT in shape.kinds:
        forms.append(_TEXT)
    elif times := shape.kinds & _TIMES:
        forms.append(f'"{pattern_of(times)}"')
    return f"(?:{'|'.join(forms)})"
