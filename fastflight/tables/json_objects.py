"""Parses one line of JSON in Python.

`NaN` and infinities are accepted, as are the spellings of MicroPython (`nan`, `inf`) and `None`, although they are not
JSON. A `Number` stands for a number whose text a double may not give back.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fastflight.tables.kinds import INFINITIES, MINUS_INFINITIES, NANS, NULLS, Kind, kind_of
from fastflight.tables.shapes import Number
from fastflight.tables.summary import shorten

# Deeper rows are rejected. Far below Python's recursion limit, which the caller's own depth counts against, too.
MAX_TEXT_NESTING = 200
# Numbers of so many characters are exact in a double, whatever their digits.
_SHORT_NUMBER = 16


def parse_object(row: bytes) -> tuple[dict[str, Any], str] | str:
    """Return an object and its text, or the reason why the row is none."""
    try:
        text = row.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the row, 0x{row[error.start]:02x}, is not UTF-8"
    if not (row.startswith(b"{") and row.endswith(b"}")):
        return f"{shorten(text)} is not a JSON object"
    deep = f"nested deeper than {MAX_TEXT_NESTING} levels"
    if (
        len(row) > MAX_TEXT_NESTING
        and row.count(b"[") + row.count(b"{") > MAX_TEXT_NESTING
        and _depth(row) > MAX_TEXT_NESTING
    ):
        return deep
    try:
        try:
            value = _decode(text)
        except json.JSONDecodeError:
            value = _decode(text := with_json_words(text.encode()).decode())
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos} of {shorten(row.decode())}"
    except RecursionError:
        return deep
    except _RepeatedKey as error:
        return f"the key {shorten(error.args[0])} occurs twice"
    if b"\\u" in row and _HALF_PAIR.search(json.dumps(value, ensure_ascii=False)):
        return "half a surrogate pair in a string"
    return value, text


_HALF_PAIR = re.compile("[\ud800-\udfff]")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def _depth(row: bytes) -> int:
    """Return how deep lists and objects are nested."""
    depth = deepest = 0
    for mark in re.findall(rb"[\[\]{}]", _STRING.sub(b"", row)):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


# Words for numbers and nulls that are not JSON, outside of strings.
_WORDS = (
    dict.fromkeys(NANS, "NaN")
    | dict.fromkeys(INFINITIES, "Infinity")
    | dict.fromkeys(MINUS_INFINITIES, "-Infinity")
    | dict.fromkeys(NULLS, "null")
)
_FOREIGN_WORD = re.compile(r'"(?:[^"\\]++|\\.)*+"|(?<=[\[:,\s])[-+#]?[A-Za-z/-]++(?=[\]},\s])')


def with_json_words(lines: bytes) -> bytes:
    """Return lines with words that JSON has, and the `NaN` and `Infinity` of its readers, in place of other words."""
    return _FOREIGN_WORD.sub(_json_word, lines.decode()).encode()


def _json_word(match: re.Match[str]) -> str:
    return _WORDS.get(match[0], match[0])


class _RepeatedKey(Exception):
    """An object holds a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKey(next(name for name in names if names.count(name) > 1))
    return value


def _number(text: str) -> float:
    if len(text) < _SHORT_NUMBER and "e" not in text and "E" not in text:
        return float(text)
    kind = kind_of(text)
    return float(text) if kind == Kind.FLOAT else Number(text, kind)


def _decode(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number of thousands of digits
        return _LONG_DECODER.decode(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_number)
_LONG_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_number, parse_int=lambda text: Number(text, kind_of(text))
)
_VALUES = json.JSONDecoder(parse_float=str, parse_int=str)


def raw_values(text: str) -> dict[str, str]:
    """Return the JSON text of each value of an object, as it stands in the row."""
    values: dict[str, str] = {}
    at = _skip(text, 1)
    while text[at] == '"':
        name, at = _VALUES.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _VALUES.raw_decode(text, start)
        values[name] = text[start:at]
        at = _skip(text, _skip(text, at) + 1)
        if at >= len(text):
            break
    return values


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
