"""All batches of what a source answers, in one list."""

from __future__ import annotations

from typing import Any

from fastflight.service.source import Reading


def items(reading: Reading) -> list[Any]:
    return [each for batches in reading for each in batches]


async def aitems(reading: Reading) -> list[Any]:
    return [each async for batches in reading for each in batches]
