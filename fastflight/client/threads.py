"""Blocking work of the client in threads, which an event loop awaits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from fastflight.concurrency.offload import off_loop
from fastflight.errors import Stopped

T = TypeVar("T")

# How long cancelled work may take to end: the server stores the batch that is on the line, and settles the file.
CANCEL_SECONDS = 10.0


async def run_cancellable(run: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Call `run` in a thread of its own. On cancellation, call `cancel`, and wait up to `CANCEL_SECONDS` for its end.

    No other work waits for the thread, however many of them there are.
    """
    thread = ThreadPoolExecutor(1, "fastflight-work")
    running = asyncio.get_running_loop().run_in_executor(thread, contextvars.copy_context().run, run)
    thread.shutdown(wait=False)  # after this call
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        cancel()
        await asyncio.wait([running], timeout=CANCEL_SECONDS)
        raise


async def run_in_thread(threads: Executor, call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """Run `call` in one of `threads` and return its result.

    A call that has begun cannot be cancelled: if this task is cancelled, it runs on, and `discard` gets its result. A
    call that still waits for a thread is not made.
    """
    cancelled = threading.Event()

    def run_unless_cancelled() -> T:
        if cancelled.is_set():
            raise Stopped("this was cancelled")
        return call()

    try:
        return await off_loop(run_unless_cancelled, discard=discard, threads=threads)
    except asyncio.CancelledError:
        cancelled.set()
        raise
