"""What an event loop asks of a client that blocks: in a thread of the loop's, and given up when it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from fastflight.client.work import Work
from fastflight.concurrency.offload import off_loop
from fastflight.errors import Stopped

T = TypeVar("T")

# What work that is given up gets to end: the server stores the batch that is on the line, and settles the file.
GIVE_UP_SECONDS = 10.0


async def worked(work: Work[T]) -> T:
    """Do `work` in a thread. Cancelled, it is given up, and has a while to leave things in order."""
    given_up = threading.Event()
    running = asyncio.ensure_future(off_loop(_begun, work.run, given_up))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        given_up.set()
        work.give_up()
        await asyncio.wait([running], timeout=GIVE_UP_SECONDS)
        raise


async def asked(call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """What `call` gives, made in a thread. Cancelled, its result goes to `discard`."""
    given_up = threading.Event()
    try:
        return await off_loop(_begun, call, given_up, discard=discard)
    except asyncio.CancelledError:
        given_up.set()
        raise


def _begun(call: Callable[[], T], given_up: threading.Event) -> T:
    """`call()`, unless it was given up while it waited for a thread: a loop has few, and a silent server keeps them."""
    if given_up.is_set():
        raise Stopped("this was given up")
    return call()
