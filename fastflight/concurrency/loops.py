"""Which event loop a shard runs: docs/decisions has what was measured."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping


def asyncio_loop() -> asyncio.AbstractEventLoop:
    """The standard library's, of the kind that can watch descriptors, which is how ports wait."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def uv_loop() -> asyncio.AbstractEventLoop:
    """libuv's: uvloop, or winloop on Windows."""
    if sys.platform == "win32":
        import winloop as uv
    else:
        import uvloop as uv
    return uv.new_event_loop()


# What they are called in statistics and in measurements.
KINDS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio_loop, "uvloop": uv_loop}


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop for this platform. libuv's was not measured on Windows, so it is not chosen there."""
    return asyncio_loop() if sys.platform == "win32" else uv_loop()


def kind_of(loop: asyncio.AbstractEventLoop) -> str:
    """The package that the loop is from: `asyncio`, `uvloop` or `winloop`."""
    return type(loop).__module__.partition(".")[0]
