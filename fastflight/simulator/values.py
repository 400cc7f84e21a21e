"""Values as MicroPython writes them: `repr`, `str` and JSON, where CPython's differ.

Formatting inside CPython (`%`, `format`, f-strings) is not covered: there a list of strings is written as CPython does.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Iterable
from typing import Any

ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def represent(value: Any) -> str:
    """Return `repr(value)`: text in ASCII, and exceptions with the comma of a tuple."""
    kind: Any = type(value)
    if kind is str:
        return ascii(value)
    if kind is list:
        return f"[{_joined(value)}]"
    if kind is tuple:
        return f"({_joined(value)}{',' * (len(value) == 1)})"
    if kind in (set, frozenset) and value:
        return f"{{{_joined(value)}}}" if kind is set else f"frozenset({{{_joined(value)}}})"
    if kind in (dict, collections.OrderedDict):
        items = f"{{{', '.join(f'{represent(key)}: {represent(item)}' for key, item in value.items())}}}"
        return items if kind is dict else f"OrderedDict({items})"
    if isinstance(value, BaseException) and kind.__repr__ is BaseException.__repr__:
        return f"{kind.__name__}{represent(value.args)}"
    if isinstance(value, type):
        return f"<class '{value.__name__}'>"
    return repr(value)


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(map(represent, values))


def text(value: Any) -> str:
    """Return `str(value)`, which `print` shows. That of an exception is its argument: of a `KeyError`, the key."""
    kind: Any = type(value)
    if isinstance(value, BaseException) and kind.__str__ in (BaseException.__str__, KeyError.__str__):
        return text(value.args[0]) if len(value.args) == 1 else represent(value.args) if value.args else ""
    return represent(value) if kind.__str__ is object.__str__ else str(value)


def to_json(value: Any, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return `json.dumps(value)`: `nan` and `inf` as they are printed, and text with only its controls escaped."""
    if isinstance(value, (str, bytes, bytearray)):
        content = value if isinstance(value, str) else value.decode()
        return f'"{"".join(map(_escaped, content))}"'
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        items = (f"{_key(key)}{separators[1]}{to_json(item, separators)}" for key, item in value.items())
        return f"{{{separators[0].join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{separators[0].join(to_json(item, separators) for item in value)}]"
    return json.dumps(value)


def _key(key: Any) -> str:
    written = to_json(key)
    return written if written.startswith('"') else f'"{written}"'


def _escaped(character: str) -> str:
    return ESCAPES.get(character) or (character if character >= " " else f"\\u{ord(character):04x}")


def from_json(content: str | bytes) -> Any:
    """Return `json.loads(content)`. Raises `ValueError`, also for `NaN` and `Infinity`."""
    try:
        return json.loads(content, parse_constant=_no_constant)
    except ValueError:
        raise ValueError("syntax error in JSON") from None


def _no_constant(name: str) -> float:
    raise ValueError(name)
