"""From a blocking iterator to a coroutine: what a sync source gives, read on the gateway's loop."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from typing import TypeVar

from fastflight.concurrency import Channel, failure_of, off_loop

T = TypeVar("T")

# What a thread that is no longer wanted gets to see so: a sync source shows signs of life now and then.
JOIN_SECONDS = 5.0


async def threaded(
    items: Callable[[], Generator[T, None, None]],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    cancel: Callable[[], None] | None = None,
) -> AsyncGenerator[T, None]:
    """Iterate `items()` in a thread of its own, and give them to this coroutine. Closing it ends the iteration.

    `cancel` is called then, from another thread: it wakes an iterator that waits without signs of life.
    """
    handed = Channel[T](max_bytes)
    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(_iterate, items, handed, size_of), name="gateway-sync", daemon=True
    )
    thread.start()
    try:
        async for item in handed:
            yield item
    finally:
        await handed.aclose()
        if cancel is not None:
            cancel()
        await off_loop(thread.join, JOIN_SECONDS)


def _iterate(items: Callable[[], Generator[T, None, None]], handed: Channel[T], size_of: Callable[[T], int]) -> None:
    try:
        with closing(items()) as iterator:
            for item in iterator:
                handed.put(item, size_of(item))
    except BaseException as error:
        handed.fail(failure_of(error))
    else:
        handed.finish()
