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

# struct code -> (numpy kind and size, Arrow type as read). A half float is widened: few clients know it.
CODES: dict[str, tuple[str, pa.DataType]] = {
    "b": ("i1", pa.int8()),
    "B": ("u1", pa.uint8()),
    "h": ("i2", pa.int16()),
    "H": ("u2", pa.uint16()),
    "i": ("i4", pa.int32()),
    "I": ("u4", pa.uint32()),
    "l": ("i4", pa.int32()),
    "L": ("u4", pa.uint32()),
    "q": ("i8", pa.int64()),
    "Q": ("u8", pa.uint64()),
    "e": ("f2", pa.float32()),
    "f": ("f4", pa.float32()),
    "d": ("f8", pa.float64()),
    "?": ("u1", pa.bool_()),
    "c": ("V1", pa.binary()),
    "s": ("V", pa.binary()),
}
# `struct` skips ASCII white space, and refuses any other.
_ITEM = re.compile(r"([0-9]{0,6})([a-zA-Z?])\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a record."""

    name: str
    code: str
    type: pa.DataType
    dtype: np.dtype[np.void] | np.dtype[np.generic]
    offset: int


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record and its size in bytes."""

    fields: tuple[Field, ...]
    size: int

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
        slots = _slots(items)
        _check_names(names, len(slots))
        fields = []
        for name, (code, width, offset) in zip(names or (), slots, strict=True):
            kind, type_ = CODES[code]
            dtype = np.dtype(f"V{width}" if code == "s" else order + kind)
            fields.append(Field(name, code, type_, dtype, offset))
        return cls(tuple(fields), size)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The numpy type of one record. Its fields are named by position, so that any column name is possible."""
        return np.dtype(
            {
                "names": [f"f{index}" for index in range(len(self.fields))],
                "formats": [field.dtype for field in self.fields],
                "offsets": [field.offset for field in self.fields],
                "itemsize": self.size,
            }
        )


def _items(format_: str) -> list[tuple[int | None, str]]:
    items: list[tuple[int | None, str]] = []
    at = 1
    while at < len(format_):
        match = _ITEM.match(format_, at)
        if match is None or match[2] not in (*CODES, "x"):
            raise RequestError(
                f"{format_[at : at + 8]!r} in the record format is not known",
                where="record",
                hint=nearest(match[2] if match else format_[at], (*CODES, "x")),
            )
        items.append((int(match[1]) if match[1] else None, match[2]))
        at = match.end()
    return items


def _slots(items: list[tuple[int | None, str]]) -> list[tuple[str, int, int]]:
    """Return (code, width, offset) of each field, in standard sizes without alignment. The caller limits the total."""
    slots: list[tuple[str, int, int]] = []
    offset = 0
    for count, code in items:
        if code == "s" and count == 0:
            raise RequestError("0s in the record format holds nothing", where="record", hint="Leave it out")
        width = (count or 1) if code == "s" else struct.calcsize("<" + code)
        for _ in range(1 if code == "s" or count is None else count):
            if code != "x":
                slots.append((code, width, offset))
            offset += width
    return slots


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
