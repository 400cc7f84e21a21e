"""Parses a `struct` format string into the fields of a fixed-size record, for numpy and for Arrow.

`Record.parse("<Ihf", ("time", "level", "volts"))` is three fields of ten bytes. The format must name its byte order:
`<` little-endian, `>` or `!` big-endian; `=` is taken as little-endian, the order of every MicroPython port. Native
alignment (`@`, or no prefix) depends on the board's compiler and is refused: write the padding as `x`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fastflight.errors import RequestError, nearest
from fastflight.tables.schemas import MAX_COLUMNS

# An incomplete record is held in memory. The record of a logger has some dozens of bytes.
MAX_RECORD_BYTES = 64 * 1024

EXAMPLE = 'For example record="<IhH" with columns=["time", "level", "flags"]'
ORDERS = {"<": "<", "=": "<", ">": ">", "!": ">"}

# struct code -> numpy kind and size, in standard sizes without alignment.
CODES = {
    **{"b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "l": "i4", "L": "u4", "q": "i8", "Q": "u8"},
    **{"e": "f2", "f": "f4", "d": "f8", "?": "u1", "c": "V1", "s": "V", "x": "V1"},
}
# Arrow types as read, if not that of the numpy type. A half float is widened: few clients know it.
_TYPES = {"e": pa.float32(), "?": pa.bool_(), "c": pa.binary(), "s": pa.binary()}
# `struct` skips ASCII white space, and refuses any other.
_ITEM = re.compile(r"([0-9]{0,6})([a-zA-Z?])\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a record: its name, its place in `Record.dtype`, its `struct` code, and its type as read."""

    name: str
    key: str
    code: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record, and the numpy type of one record, padding included."""

    fields: tuple[Field, ...]
    dtype: np.dtype[np.void]

    @classmethod
    def parse(cls, format_: str | None, names: Sequence[str] | None) -> Record:
        """Return the record of a format whose fields, without padding, have these `names`.

        `RequestError` if the format is missing or wrong, or if the number of names differs from that of the fields.
        """
        if not format_:
            raise RequestError("a packed file needs a record format", where="record", hint=EXAMPLE)
        order = ORDERS.get(format_[0])
        if order is None:
            raise RequestError(
                f"the record format {format_[:40]!r} does not name its byte order",
                where="record",
                hint=f"Start it with < (little-endian) or > (big-endian) and write padding as x. {EXAMPLE}",
            )
        items = _items(format_)
        try:
            size = struct.calcsize(order + format_[1:])
        except struct.error as error:
            raise RequestError(f"the record format is wrong: {error}", where="record", hint=EXAMPLE) from None
        if not 0 < size <= MAX_RECORD_BYTES:
            raise RequestError(f"a record of {size} bytes", where="record", hint=f"1 to {MAX_RECORD_BYTES} bytes")
        values = [
            (code, f"V{count}") if code == "s" else (code, order + CODES[code])
            for count, code in items
            for _ in range(1 if code == "s" else count)
        ]
        keys = [f"f{place}" for place in range(len(values))]
        dtype = np.dtype([(key, kind) for key, (_, kind) in zip(keys, values, strict=True)])
        slots = [(key, code) for key, (code, _) in zip(keys, values, strict=True) if code != "x"]
        _check_names(names, len(slots))
        fields = [
            Field(name, key, code, _TYPES.get(code) or pa.from_numpy_dtype(np.dtype(CODES[code])))
            for name, (key, code) in zip(names or (), slots, strict=True)
        ]
        return cls(tuple(fields), dtype)


def _items(format_: str) -> list[tuple[int, str]]:
    """Return how many of each code follow one another; for `s`, of how many bytes it is."""
    items: list[tuple[int, str]] = []
    at = 1
    while at < len(format_):
        match = _ITEM.match(format_, at)
        if match is None or match[2] not in CODES:
            raise RequestError(
                f"{format_[at : at + 8]!r} in the record format is not known",
                where="record",
                hint=nearest(match[2] if match else format_[at], CODES),
            )
        if match[2] == "s" and match[1] and not int(match[1]):
            raise RequestError("0s in the record format holds nothing", where="record", hint="Leave it out")
        items.append((int(match[1] or 1), match[2]))
        at = match.end()
    return items


def _check_names(names: Sequence[str] | None, fields: int) -> None:
    if not 0 < fields <= MAX_COLUMNS:
        raise RequestError(f"the record has {fields} fields", where="record", hint=f"1 to {MAX_COLUMNS} fields")
    if names is None:
        raise RequestError(f"the record has {fields} fields without names", where="columns", hint=EXAMPLE)
    if len(names) != fields:
        raise RequestError(
            f"the record has {fields} fields and columns names {len(names)}",
            where="columns",
            hint="Name every field once, and no padding (x)",
        )
    for position, name in enumerate(names):
        if name in names[:position]:
            raise RequestError(f"two fields are named {name!r}", where="columns", hint="Give each field its own name")
