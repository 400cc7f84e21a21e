"""One holder at a time, for threads and for coroutines of any loop, in the order they asked.

Ownership is handed over: `release` makes the longest waiting one the holder, so nobody can slip in between. A waiter
that leaves (timeout, cancellation) at the moment it is handed the lock either keeps it (and returns) or passes it on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from fastflight.errors import BusyError


@dataclass(slots=True, eq=False)
class _Waiter:
    holder: str
    wake: Callable[[], object]
    granted: bool = False


class Exclusive:
    """A lock on `where` (a device's name) that knows who holds it."""

    def __init__(self, where: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.where = where
        self._clock = clock
        self._lock = threading.Lock()
        self._holder: str | None = None
        self._since = 0.0
        self._waiters: deque[_Waiter] = deque()

    @property
    def holder(self) -> str | None:
        """Who holds it now; None when it is free."""
        return self._holder

    def acquire(self, holder: str, timeout: float) -> None:
        """Become the holder, within `timeout` seconds. `BusyError` says who holds it instead."""
        woken = threading.Event()
        waiter = self._enter(holder, woken.set)
        try:
            woken.wait(timeout)
        except BaseException:  # KeyboardInterrupt in the main thread
            self._withdraw(waiter)
            raise
        self._check(waiter)

    async def aacquire(self, holder: str, timeout: float) -> None:
        """The same from a coroutine. A cancelled waiter never keeps the lock."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = self._enter(holder, lambda: loop.call_soon_threadsafe(woken.set))
        try:
            if not waiter.granted:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), timeout)
        except BaseException:
            self._withdraw(waiter)
            raise
        self._check(waiter)

    def release(self) -> None:
        """Hand it to the longest waiting one, or leave it free. Only the holder may call this."""
        with self._lock:
            if self._holder is None:
                raise RuntimeError("released, but nobody holds it")
            self._hand_over()

    @contextlib.contextmanager
    def held(self, holder: str, timeout: float) -> Iterator[None]:
        """Hold it for the length of a `with` block."""
        self.acquire(holder, timeout)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld(self, holder: str, timeout: float) -> AsyncIterator[None]:
        """Hold it for the length of an `async with` block."""
        await self.aacquire(holder, timeout)
        try:
            yield
        finally:
            self.release()

    def _enter(self, holder: str, wake: Callable[[], object]) -> _Waiter:
        waiter = _Waiter(holder, wake)
        with self._lock:
            self._waiters.append(waiter)
            if self._holder is None:
                self._hand_over()
        return waiter

    def _check(self, waiter: _Waiter) -> None:
        """Return if the lock is the waiter's, else withdraw it and say who holds it."""
        with self._lock:
            if waiter.granted:
                return
            self._waiters.remove(waiter)
            holder, seconds = self._holder or "", self._clock() - self._since
        raise BusyError(
            f"in use by {holder} for {seconds:.1f} s",
            holder=holder,
            where=self.where,
            hint="Wait until it is done, or end it there",
        )

    def _withdraw(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter.granted:
                self._hand_over()
            elif waiter in self._waiters:  # not when its loop was closed before its turn
                self._waiters.remove(waiter)

    def _hand_over(self) -> None:
        """Make the next waiter the holder. `_lock` is held."""
        self._holder = None
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.granted = True
            try:
                waiter.wake()
            except RuntimeError:  # its loop is closed: it will never run again
                waiter.granted = False
                continue
            self._holder, self._since = waiter.holder, self._clock()
            return
