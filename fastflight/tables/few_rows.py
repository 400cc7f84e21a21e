"""Reads a few CSV or JSON rows in Python, without pyarrow's text readers.

pyarrow's readers start a thread for each call. In live traffic most calls read a single row, and the thread costs more
than the row: 168 us of CPU time for one JSON line instead of 48, and 180 us for one CSV line instead of 56. From about
16 rows on both ways cost the same. A server of 100 boards that print ten JSON lines a second needs 0.7 of a core with
this module, and 0.9 to 1.3 without it (two busy shared cores, Python 3.11, pyarrow 26).

`FewRows` reads only rows for which it is certain to give the same result as pyarrow. For all others, bad rows included,
it returns None, and the caller uses pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from fastflight.tables.fitting import NUMBER, WHOLE

# With more rows than this, pyarrow is at least as fast.
FEW_ROWS = 16

_KINDS: dict[pa.DataType, type] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool, pa.string(): str}
_SCALARS = frozenset({*_KINDS.values(), type(None)})
# Integers up to this size are exact in a column of doubles.
_EXACT = 2**53
# pyarrow has special rules for quotes, carriage returns, NULs, a byte order mark, and a last row without a line feed.
_SPECIAL_CSV = re.compile(rb'["\r\0]|\A\xef\xbb\xbf|[^\n]\Z')


class FewRows:
    """Reads rows of `schema`. `true` and `false` are the CSV cells that mean True and False."""

    def __init__(self, schema: pa.Schema, true: Sequence[str] = (), false: Sequence[str] = ()) -> None:
        self._struct = pa.struct(list(schema))
        self._kinds = {field.name: _KINDS.get(field.type) for field in schema}
        # False if a column has another type; then pyarrow reads all rows.
        self._is_supported = bool(self._kinds) and None not in self._kinds.values() and not schema.metadata
        truth = dict.fromkeys(true, True) | dict.fromkeys(false, False)
        values: dict[type | None, Callable[[str], Any]] = {
            int: _whole, float: _number, bool: truth.__getitem__, str: str, None: str
        }  # fmt: skip
        self._values = {name: values[kind] for name, kind in self._kinds.items()}

    def from_json(self, data: bytes, rows: int) -> pa.RecordBatch | None:
        """Return a batch of `rows` objects, one on each line; None if pyarrow must read them."""
        # pyarrow has special rules for surrogates and for negative zeros.
        if not self._is_supported or rows > FEW_ROWS or b"\\u" in data or b"-0" in data:
            return None
        try:
            objects = [_DECODER.decode(line) for line in data.decode().split("\n")[:-1]]
        except (ValueError, RecursionError):
            return None
        return self._batch(objects) if len(objects) == rows and all(map(self._fits, objects)) else None

    def from_csv(self, data: bytes, header: Sequence[str], delimiter: str) -> pa.RecordBatch | None:
        """Return a batch of rows that each end in a line feed; None if pyarrow must read them.

        `header` names the cells of a row, which are separated by `delimiter`.
        """
        if not self._is_supported or data.count(b"\n") > FEW_ROWS or _SPECIAL_CSV.search(data):
            return None
        try:
            # In a table of one column an empty line is a null; otherwise it is skipped.
            lines = [line for line in data.decode().split("\n")[:-1] if line or len(header) == 1]
            objects = [self._cells(header, line.split(delimiter)) for line in lines]
        except (ValueError, KeyError):
            return None
        return self._batch(objects) if objects else None

    def _cells(self, header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
        row = zip(header, cells, strict=True)
        return {name: self._values[name](cell) if cell else None for name, cell in row if name in self._values}

    def _fits(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name, each in value.items():
            kind = type(each)
            if kind not in _SCALARS:
                return False
            wanted = self._kinds.get(name, kind)
            if kind is wanted or each is None:
                continue
            if not (wanted is float and kind is int and -_EXACT <= each <= _EXACT):
                return False
        return True

    def _batch(self, objects: list[dict[str, Any]]) -> pa.RecordBatch | None:
        try:
            # One call for all columns: a call for each column would cost as much as this one.
            return pa.RecordBatch.from_struct_array(pa.array(objects, self._struct))
        except (ValueError, OverflowError):  # an integer beyond 64 bits, a string with half a surrogate pair
            return None


def _whole(cell: str) -> int:
    if not WHOLE(cell):
        raise ValueError(cell)
    return int(cell)


def _number(cell: str) -> float:
    if not NUMBER(cell):
        raise ValueError(cell)
    return float(cell)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("beyond a double")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant)
