"""Which event loop a shard runs."""

from __future__ import annotations

import asyncio
import sys


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop for this platform; it can watch descriptors, which is how ports wait."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def kind_of(loop: asyncio.AbstractEventLoop) -> str:
    """The package that the loop is from: `asyncio`, `uvloop` or `winloop`."""
    return type(loop).__module__.partition(".")[0]
