"""Work that somebody watches over: what the watcher finds ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def until(watch: Callable[[], Coroutine[Any, Any, Exception]]) -> AsyncIterator[None]:
    """Cancel what stands in the block when `watch()` returns an error, or raises one; it ends with that error then."""
    task = asyncio.current_task()
    assert task is not None
    found: list[Exception] = []

    async def watching() -> None:
        try:
            found.append(await watch())
        except Exception as error:
            found.append(error)
        task.cancel()

    running = asyncio.ensure_future(watching())
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
        except asyncio.CancelledError:  # found when the block had ended
            if not found or task.uncancel():
                raise
        finally:
            # What was raised holds this frame and all that it went through, which is not to wait for Python to look
            # for cycles: there are batches among it.
            found.clear()
