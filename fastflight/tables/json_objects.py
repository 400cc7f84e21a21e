"""Parses one line of JSON in Python.

`NaN` and infinities are accepted, as are the spellings of MicroPython (`nan`, `inf`), `None`, and objects as Python
prints them (`{'t': 21.5, 'ok': True}`), although they are not JSON. A `Number` stands for a number whose text a double
may not give back.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from typing import Any

from fastflight.tables.kinds import INFINITIES, MINUS_INFINITIES, NANS, NULLS, Kind, kind_of
from fastflight.tables.shapes import Number
from fastflight.tables.summary import shorten

# Deeper rows are rejected. Far below Python's recursion limit, which the caller's own depth counts against, too.
MAX_TEXT_NESTING = 200
# Numbers of so many characters are exact in a double, whatever their digits.
_SHORT_NUMBER = 16


def parse_object(row: bytes) -> tuple[dict[str, Any], str] | str:
    """Return an object and its text, or the reason why the row is none.

    A comma at the end, as in a list of objects, and a byte order mark, as where files were joined, are not part of it.
    """
    row = row.removeprefix(codecs.BOM_UTF8)
    if row.endswith(b"},"):
        row = row[:-1]
    try:
        text = row.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the row, 0x{row[error.start]:02x}, is not UTF-8"
    if not (row.startswith(b"{") and row.endswith(b"}")):
        return f"{shorten(text)} is not a JSON object"
    deep = f"nested deeper than {MAX_TEXT_NESTING} levels"
    if _is_deep(row) and (b"'" not in row or _is_deep(as_json(row))):  # brackets may be in a string of Python
        return deep
    try:
        try:
            value = _decode(text)
        except json.JSONDecodeError:
            text = as_json(row).decode()
            if _is_deep(text.encode()):
                return deep
            value = _decode(text)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos} of {shorten(row.decode())}"
    except RecursionError:
        return deep
    except _RepeatedKey as error:
        return f"the key {shorten(error.args[0])} occurs twice"
    if "\\u" in text and _HALF_PAIR.search(json.dumps(value, ensure_ascii=False)):
        return "half a surrogate pair in a string"
    return value, text


_HALF_PAIR = re.compile("[\ud800-\udfff]")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def _is_deep(row: bytes) -> bool:
    """Whether lists and objects are nested too deeply."""
    if row.count(b"[") + row.count(b"{") <= MAX_TEXT_NESTING:
        return False
    depth = deepest = 0
    for mark in re.findall(rb"[\[\]{}]", _STRING.sub(b"", row)):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_TEXT_NESTING


# Words for numbers, nulls and truth values that are not JSON, outside of strings.
_WORDS = (
    dict.fromkeys(NANS, "NaN")
    | dict.fromkeys(INFINITIES, "Infinity")
    | dict.fromkeys(MINUS_INFINITIES, "-Infinity")
    | dict.fromkeys(NULLS, "null")
    | {"True": "true", "False": "false"}
)
# Strings, and what may not be JSON outside of them. Tuples are lists.
_FOREIGN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')"""
    r"|(?<=[\[(:,\s])(?P<word>[-+#]?[A-Za-z/-]++)(?=[\]}),\s])"
    r"|(?P<open>\()|(?P<close>(?<=[^(,\s]),\)|\))"
)
_ESCAPE = re.compile(r"""\\x([0-9a-fA-F]{2})|\\U([0-9a-fA-F]{8})|\\?(["'])|\\.""")


def as_json(lines: bytes) -> bytes:
    """Return lines as JSON, if only their words or their strings and tuples, as Python prints them, are none.

    They have the `NaN` and `Infinity` of JSON readers.
    """
    return _FOREIGN.sub(_json_part, lines.decode()).encode()


def _json_part(match: re.Match[str]) -> str:
    text = match[0]
    if match["string"]:
        plain = text[0] == '"' and "\\" not in text
        return text if plain else '"' + _ESCAPE.sub(_json_escape, text[1:-1]) + '"'
    if match["word"]:
        return _WORDS.get(text, text)
    return "[" if match["open"] else "]"


def _json_escape(match: re.Match[str]) -> str:
    code, long_code, quote = match.groups()
    if quote:
        return '\\"' if quote == '"' else quote
    if code:
        return f"\\u00{code}"
    if long_code and int(long_code, 16) <= sys.maxunicode:
        return chr(int(long_code, 16))
    return match[0]


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
