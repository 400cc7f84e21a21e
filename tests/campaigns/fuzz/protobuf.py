"""Protobuf messages by hand, so that they may be wrong: fields that are given, in the order that they are given."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Seven bits a byte, the low ones first."""
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number: int, content: bytes | int) -> bytes:
    """One field: bytes with their length, or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content
