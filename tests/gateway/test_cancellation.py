"""Work that is watched over."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

from fastflight.errors import DataError
from fastflight.gateway.cancellation import cancel_when

SOON = 60.0


class HeldCall:
    """Something large that was in hand."""


def test_what_was_found_holds_nothing_of_what_it_ended() -> None:
    released = threading.Event()

    async def found() -> Exception:
        return DataError("enough")

    async def work() -> None:
        held = HeldCall()
        weakref.finalize(held, released.set)
        async with cancel_when(found):
            await asyncio.Event().wait()

    async def main() -> None:
        with contextlib.suppress(DataError):
            await work()

    gc.disable()
    try:
        asyncio.run(main())
        assert released.wait(SOON)
    finally:
        gc.enable()
