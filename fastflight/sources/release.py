"""Releases a board whose file is read by a slow client.

A client that reads as fast as the board sends gets each piece of the file at once. If it has not asked for the next
piece for `PATIENCE_SECONDS`, the rest of the file is read into a spool, and the generator of the pieces ends, which
holds the lease. The client gets the rest from the spool, whenever it asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Generator

from fastflight.concurrency import Shard
from fastflight.concurrency.blocking import Blocking
from fastflight.concurrency.offload import off_loop, unbroken
from fastflight.sources.spool import Spool

# Longer than any reader on a working network takes for a batch, and short for the next person who wants the board.
PATIENCE_SECONDS = 1.0
# A reader that comes back while the spool is being filled gets empty pieces at this pace, as from a silent board.
TICK_SECONDS = 0.05


def released(
    pieces: Generator[bytes, None, None] | Blocking[bytes], shard: Shard, patience: float = PATIENCE_SECONDS
) -> Generator[bytes, None, None]:
    """Yield `pieces`, which are read in the calling thread while the caller keeps up. `shard` watches over that."""
    rest = _Rest(pieces)
    watching = shard.submit(rest.watch(patience))
    try:
        while True:
            while not rest.lock.acquire(timeout=TICK_SECONDS):
                yield b""
            try:
                if rest.spool is not None:
                    break
                piece = next(pieces, None)
            finally:
                rest.lock.release()
            if piece is None:
                return
            rest.paused = time.monotonic()
            yield piece
            rest.paused = None
        yield from rest.content()
    finally:
        watching.cancel()
        rest.close()


class _Rest:
    """The pieces that a slow reader has left. `lock` is held by whoever advances `pieces`."""

    def __init__(self, pieces: Generator[bytes, None, None] | Blocking[bytes]) -> None:
        self._pieces = pieces
        self.lock = threading.Lock()
        # Since when the reader has not asked for a piece; None while it waits for one.
        self.paused: float | None = None
        # Set once the rest has been read, or could not be.
        self.spool: Spool | None = None
        self._error: BaseException | None = None
        self._closed = False

    async def watch(self, patience: float) -> None:
        """Have a thread read the rest, once the reader is slow."""
        while True:
            await asyncio.sleep(patience / 2)
            paused = self.paused
            if paused is not None and time.monotonic() - paused >= patience and self.lock.acquire(blocking=False):
                # Its own thread: the others are for work that ends soon, and this waits for a board.
                try:
                    threading.Thread(target=self._drain, name="slow-reader", daemon=True).start()
                except RuntimeError:  # the system cannot start another thread now
                    self.lock.release()
                    continue
                return

    def _drain(self) -> None:
        self.spool = Spool()
        try:
            for piece in self._pieces:
                if self._closed:
                    break
                self.spool.feed(piece)
        except BaseException as error:  # raised in the reader's thread
            self._error = error
        finally:
            with contextlib.suppress(BaseException):
                self._pieces.close()
            self.lock.release()

    def content(self) -> Generator[bytes, None, None]:
        """Yield what was drained, and raise the error that ended it."""
        assert self.spool is not None
        yield from self.spool.pieces()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the reading of the board."""
        self._closed = True
        with self.lock:
            self._pieces.close()
        if self.spool is not None:
            self.spool.close()


async def areleased(
    pieces: AsyncGenerator[bytes, None], patience: float = PATIENCE_SECONDS
) -> AsyncGenerator[bytes, None]:
    """As `released`, on an event loop."""
    spool = Spool()
    # Since when the reader has not asked for a piece; None while it waits for one.
    paused: float | None = None
    draining = False

    async def drain_if_slow() -> None:
        nonlocal draining
        while True:
            await asyncio.sleep(patience / 2)
            if paused is not None and time.monotonic() - paused >= patience:
                break
        draining = True
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                await spool.afeed(piece)

    watching = asyncio.create_task(drain_if_slow())
    try:
        while not draining:
            piece = await anext(pieces, None)
            if piece is None:
                return
            paused = time.monotonic()
            yield piece
            paused = None
        while not watching.done():
            await asyncio.wait([watching], timeout=TICK_SECONDS)
            yield b""
        rest = spool.pieces()
        while piece := await off_loop(next, rest, b""):
            yield piece
        watching.result()
    finally:
        watching.cancel()
        await unbroken(_close(watching, pieces, spool))


async def _close(watching: asyncio.Task[None], pieces: AsyncGenerator[bytes, None], spool: Spool) -> None:
    """End what reads the board: first the task that may be reading, then its generator."""
    await asyncio.wait([watching])
    await pieces.aclose()
    spool.close()
