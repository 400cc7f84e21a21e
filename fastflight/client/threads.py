"""Blocking work of the client in threads: long work that any thread can stop, and calls that an event loop awaits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fastflight.concurrency.offload import off_loop
from fastflight.errors import Stopped

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# How long cancelled work may take to end: the server stores the batch that is on the line, and settles the file.
GIVE_UP_SECONDS = 10.0


class Work(Protocol[T_co]):
    """`run` returns when the work is done. `give_up`, called from any thread, makes `run` raise `Stopped` soon."""

    def run(self) -> T_co: ...

    def give_up(self) -> None: ...


class Steps:
    """Base of work that runs step by step. `give_up` stops the running step, and no other step begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._stop: Callable[[], None] | None = None

    def give_up(self) -> None:
        """Stop the work, from any thread."""
        with self._lock:
            self._given_up = True
            stop = self._stop
        if stop is not None:
            stop()

    @contextmanager
    def step(self, stop: Callable[[], None]) -> Iterator[None]:
        """Run the block as a step, which `stop` can end from another thread. Raises `Stopped` after `give_up`."""
        with self._lock:
            if self._given_up:
                raise Stopped("this was given up")
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


async def run_work(run: Callable[[], T], give_up: Callable[[], None]) -> T:
    """Call `run` in a thread of its own. On cancellation, call `give_up`, and wait up to `GIVE_UP_SECONDS` for its end.

    No other work waits for the thread, however many of them there are.
    """
    thread = ThreadPoolExecutor(1, "fastflight-work")
    running = asyncio.get_running_loop().run_in_executor(thread, contextvars.copy_context().run, run)
    thread.shutdown(wait=False)  # after this call
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        give_up()
        await asyncio.wait([running], timeout=GIVE_UP_SECONDS)
        raise


async def run_in_thread(threads: Executor, call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """Run `call` in one of `threads` and return its result.

    A call that has begun cannot be cancelled: if this task is cancelled, it runs on, and `discard` gets its result. A
    call that still waits for a thread is not made.
    """
    cancelled = threading.Event()

    def run_unless_cancelled() -> T:
        if cancelled.is_set():
            raise Stopped("this was given up")
        return call()

    try:
        return await off_loop(run_unless_cancelled, discard=discard, threads=threads)
    except asyncio.CancelledError:
        cancelled.set()
        raise
