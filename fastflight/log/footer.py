"""Makes the footer of a Parquet file that has only some row groups of another one.

A footer is a struct of Thrift's compact protocol (`FileMetaData` in Parquet's parquet.thrift), its size, and a magic.
Everything but the list of row groups and the number of rows is copied as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_END = struct.Struct("<I4s")
# Fields of `FileMetaData`.
_ROWS, _ROW_GROUPS = 3, 4
# Types of the compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 6, 7, 8, 9, 10, 12
# In a header of a list: the size follows as a number of its own.
_LONG = 15


def footer_of(footer: bytes, groups: Sequence[int], rows: int) -> bytes:
    """Return `footer`, with its size and magic, for the row groups with these numbers, which have `rows` rows.

    `ValueError` for a footer of another form.
    """
    try:
        return _footer_of(footer, groups, rows)
    except (IndexError, struct.error) as error:
        raise ValueError("not the footer of a Parquet file") from error


def _footer_of(footer: bytes, groups: Sequence[int], rows: int) -> bytes:
    _, magic = _END.unpack_from(footer, len(footer) - _END.size)
    pieces: list[bytes] = []
    at = field = 0
    while (head := footer[at]) != _STOP:
        start, kind = at, head & 15
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            number, at = _varint(footer, at)
            field = (number >> 1) ^ -(number & 1)
        content = at
        at = _end_of(footer, at, kind)
        if field == _ROWS:
            pieces += [footer[start:content], _encoded(rows << 1)]  # zigzag of a number that is not negative
        elif field == _ROW_GROUPS:
            chosen = _chosen(footer, content, groups)
            pieces += [footer[start:content], _list_header(len(chosen)), *chosen]
        else:
            pieces.append(footer[start:at])
    made = b"".join([*pieces, bytes([_STOP])])
    return made + _END.pack(len(made), magic)


def _chosen(data: bytes, at: int, groups: Sequence[int]) -> list[bytes]:
    """Return the structs with these numbers in a list of structs."""
    count, at = _list_size(data, at)
    wanted, found = set(groups), []
    for number in range(count):
        end = _end_of(data, at, _STRUCT)
        if number in wanted:
            found.append(data[at:end])
        at = end
    return found


def _list_size(data: bytes, at: int) -> tuple[int, int]:
    return (data[at] >> 4, at + 1) if data[at] >> 4 != _LONG else _varint(data, at + 1)


def _list_header(size: int) -> bytes:
    return bytes([size << 4 | _STRUCT]) if size < _LONG else bytes([_LONG << 4 | _STRUCT]) + _encoded(size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place after it."""
    value = shift = 0
    while (byte := data[at]) & 128:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _end_of(data: bytes, at: int, kind: int) -> int:
    """Return the place after a value."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    if _BYTE < kind <= _I64:
        while data[at] & 128:
            at += 1
        return at + 1
    if kind == _BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind in (_LIST, _SET):
        element = data[at] & 15
        size, at = _list_size(data, at)
        for _ in range(size):
            at = at + 1 if element in (_TRUE, _FALSE) else _end_of(data, at, element)
        return at
    if kind == _STRUCT:
        while (head := data[at]) != _STOP:
            at += 1
            if not head >> 4:
                _, at = _varint(data, at)
            at = _end_of(data, at, head & 15)
        return at + 1
    raise ValueError(f"type {kind} is not in a footer")
