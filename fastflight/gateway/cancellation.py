"""Runs a block of code together with a coroutine that watches a condition and can end the block with an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def cancel_when(watch: Callable[[], Coroutine[Any, Any, Exception]]) -> AsyncIterator[None]:
    """Run `watch()` beside the block. When it returns or raises an error, cancel the block, and raise that error.

    At the end of the block, `watch()` is cancelled.
    """
    task = asyncio.current_task()
    assert task is not None
    found: list[Exception] = []

    async def run_watch() -> None:
        try:
            found.append(await watch())
        except Exception as error:
            found.append(error)
        task.cancel()

    running = asyncio.ensure_future(run_watch())
    try:
        yield
    except asyncio.CancelledError:
        if not found or task.uncancel():
            raise
        raise found[0] from None
    finally:
        running.cancel()
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:  # the watch failed after the block had ended
            if not found or task.uncancel():
                raise
        finally:
            # The error refers to this frame, and the frame to the error. Break this cycle: its frames hold batches,
            # which must not wait for the garbage collector.
            found.clear()
