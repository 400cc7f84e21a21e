"""Content for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

CONTENT = bytes(range(256)) * 40


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece
