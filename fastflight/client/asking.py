"""Run blocking client calls in the threads of an event loop, and stop them when their task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from fastflight.client.work import Work
from fastflight.concurrency.offload import off_loop
from fastflight.errors import Stopped

T = TypeVar("T")

# How long cancelled work may take to end: the server stores the batch that is on the line, and settles the file.
GIVE_UP_SECONDS = 10.0


async def work_in_thread(work: Work[T]) -> T:
    """Run `work` in a thread. On cancellation, stop it and wait up to `GIVE_UP_SECONDS` for it to clean up."""
    cancelled = threading.Event()
    running = asyncio.ensure_future(off_loop(_run_unless_cancelled, work.run, cancelled))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        cancelled.set()
        work.give_up()
        await asyncio.wait([running], timeout=GIVE_UP_SECONDS)
        raise


async def call_in_thread(call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """Run `call` in a thread and return its result.

    A call that has begun cannot be cancelled: if this task is cancelled, it runs on, and `discard` gets its result.
    """
    cancelled = threading.Event()
    try:
        return await off_loop(_run_unless_cancelled, call, cancelled, discard=discard)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def _run_unless_cancelled(call: Callable[[], T], cancelled: threading.Event) -> T:
    """Call `call`, unless `cancelled` was set while the call waited for a thread.

    A loop has few threads, and a server that does not answer keeps them busy.
    """
    if cancelled.is_set():
        raise Stopped("this was given up")
    return call()
