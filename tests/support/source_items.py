"""All items of what a source answers, in one list."""

from __future__ import annotations

from typing import Any

from fastflight.service.source import AsyncReading, Reading


def items(reading: Reading) -> list[Any]:
    return [item for lot in reading.all_lots() for item in lot]


async def aitems(reading: AsyncReading) -> list[Any]:
    return [item async for lot in reading.all_lots() for item in lot]
