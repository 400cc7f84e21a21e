"""One holder at a time, for threads and for coroutines of any loop, in the order they asked.

Ownership is handed over: `release` makes the longest waiting one the holder, so nobody can slip in between. A waiter
that leaves (timeout, cancellation) at the moment it is handed the lock either keeps it (and returns) or passes it on.

Beside those stands who would use the time when nobody else does (`aheld_until_wanted`): it comes after all others, is
asked to give way by the first one that comes, and is never said to be the holder.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from fastflight.concurrency.tenure import Tenure
from fastflight.errors import BusyError

# Nobody knows when a person's tool will be done: who finds one waits for a short command at most, and is told.
LASTING_SECONDS = 1.0
# Who gives way may have to finish what cannot be broken off, such as opening a port; then it hands over at once.
GIVE_WAY_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class _Waiter:
    holder: str
    wake: Callable[[], object]
    # It may keep the lock for hours.
    lasting: bool = False
    # Until when it may keep what it does not use; None for one that may for ever.
    tenure: Tenure | None = None
    # How to ask it to give way; None for one that does not.
    ask: Callable[[], object] | None = None
    granted: bool = False
    leaving: bool = False


class Exclusive:
    """A lock on `where` (a device's name) that knows who holds it."""

    def __init__(self, where: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.where = where
        self._clock = clock
        self._lock = threading.Lock()
        self._current: _Waiter | None = None
        # How often it was handed to somebody, not counting those that give way.
        self.turns = 0
        # How often one that was idle had to go because somebody else asked.
        self.put_out = 0
        self._since = 0.0
        self._waiters: deque[_Waiter] = deque()
        # Those that come after all others, and give way.
        self._idle: deque[_Waiter] = deque()

    @property
    def holder(self) -> str | None:
        """Who holds it now; None when it is free, or held by one that gives way."""
        current = self._current
        return current.holder if current is not None and current.ask is None else None

    def acquire(self, holder: str, timeout: float, *, lasting: bool = False, tenure: Tenure | None = None) -> None:
        """Become the holder, within `timeout` seconds. `BusyError` says who holds it instead.

        `lasting`: there is no telling for how long. Those that ask meanwhile need not have the patience they offer,
        unless its `tenure` has run out.
        """
        woken = threading.Event()
        waiter = _Waiter(holder, woken.set, lasting, tenure)
        try:
            woken.wait(self._enter(waiter, timeout))
        except BaseException:  # KeyboardInterrupt in the main thread
            self._withdraw(waiter)
            raise
        self._check(waiter)

    async def aacquire(
        self, holder: str, timeout: float, *, lasting: bool = False, tenure: Tenure | None = None
    ) -> None:
        """The same from a coroutine. A cancelled waiter never keeps the lock."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = _Waiter(holder, lambda: loop.call_soon_threadsafe(woken.set), lasting, tenure)
        try:
            patience = self._enter(waiter, timeout)
            if not waiter.granted:
                # Not `wait_for`: before Python 3.12 one that is cancelled as it is woken would not know of it.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await woken.wait()
        except BaseException:
            self._withdraw(waiter)
            raise
        self._check(waiter)

    def release(self) -> None:
        """Hand it to the longest waiting one, or leave it free. Only the holder may call this."""
        with self._lock:
            if self._current is None:
                raise RuntimeError("released, but nobody holds it")
            self._hand_over()

    @contextlib.contextmanager
    def held(
        self, holder: str, timeout: float, *, lasting: bool = False, tenure: Tenure | None = None
    ) -> Iterator[None]:
        """Hold it for the length of a `with` block."""
        self.acquire(holder, timeout, lasting=lasting, tenure=tenure)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld(
        self, holder: str, timeout: float, *, lasting: bool = False, tenure: Tenure | None = None
    ) -> AsyncIterator[None]:
        """Hold it for the length of an `async with` block."""
        await self.aacquire(holder, timeout, lasting=lasting, tenure=tenure)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld_until_wanted(self, holder: str) -> AsyncIterator[asyncio.Event]:
        """Hold it for an `async with` block while nobody else wants it; waits for that as long as it takes.

        The event is set when somebody does: leave the block then.
        """
        loop = asyncio.get_running_loop()
        woken, wanted = asyncio.Event(), asyncio.Event()
        waiter = _Waiter(
            holder,
            lambda: loop.call_soon_threadsafe(woken.set),
            ask=lambda: loop.call_soon_threadsafe(wanted.set),
        )
        try:
            self._enter(waiter, 0)
            await woken.wait()
        except BaseException:
            self._withdraw(waiter)
            raise
        try:
            yield wanted
        finally:
            self.release()

    def _enter(self, waiter: _Waiter, timeout: float) -> float:
        """Queue the waiter, or make it the holder. Returns how long it is to wait."""
        with self._lock:
            (self._waiters if waiter.ask is None else self._idle).append(waiter)
            current = self._current
            if current is None:
                self._hand_over()
                return timeout
            if waiter.ask is None and current.ask is not None and len(self._waiters) == 1:
                _call(current.ask)
                # Nobody is in the way who would not leave: being told so would be wrong.
                return max(timeout, GIVE_WAY_SECONDS)
        # Not under the lock, which who is told to leave may need.
        if waiter.ask is None and current.tenure is not None and current.tenure.wanted() <= 0:
            with self._lock:
                self.put_out += not current.leaving
                current.leaving = True
            return max(timeout, GIVE_WAY_SECONDS)
        return min(timeout, LASTING_SECONDS) if current.lasting else timeout

    def _check(self, waiter: _Waiter) -> None:
        """Return if the lock is the waiter's, else withdraw it and say who holds it."""
        with self._lock:
            if waiter.granted:
                return
            current, seconds = self._current, self._clock() - self._since
            if current is not None and current.ask is not None and self._waiters[0] is not waiter:
                current, seconds = self._waiters[0], 0.0  # who is about to have it
            self._waiters.remove(waiter)
        holder = current.holder if current is not None else ""
        hint = "Wait until it is done, or end it there"
        if current is not None and current.tenure is not None:
            hint = (
                f"Close it where it is open, or ask again in {math.ceil(current.tenure.left())} s: it gives the device"
                f" up when nothing was sent to it for {current.tenure.idle_seconds:g} s"
            )
        raise BusyError(f"in use by {holder} for {seconds:.1f} s", holder=holder, where=self.where, hint=hint)

    def _withdraw(self, waiter: _Waiter) -> None:
        """Take the waiter out, whatever it failed by: nobody would release a lock that it is handed later."""
        queue = self._waiters if waiter.ask is None else self._idle
        with self._lock:
            if waiter.granted:
                self._hand_over()
            elif waiter in queue:  # not when its loop was closed before its turn
                queue.remove(waiter)

    def _hand_over(self) -> None:
        """Make the next waiter the holder. `_lock` is held."""
        self._current = None
        for queue in (self._waiters, self._idle):
            while queue:
                waiter = queue.popleft()
                if not _call(waiter.wake):
                    continue
                waiter.granted = True
                self._current, self._since = waiter, self._clock()
                self.turns += waiter.ask is None
                return


def _call(callback: Callable[[], object]) -> bool:
    """False when its loop is closed: it will never run again."""
    try:
        callback()
    except RuntimeError:
        return False
    return True
