"""A fair lock with a named holder, for threads and for coroutines of any loop.

`release` hands the lock to the longest waiting one, so no newcomer gets in between. A waiter that leaves (timeout,
cancellation) at the moment it is handed the lock either keeps it and returns, or passes it on.

Two kinds of holders let it go early. An `IdleClaim` lapses when its holder has not used the lock for a while and
somebody else asks. A background holder (`aheld_until_wanted`) comes after all others, is asked to give way by the first
of them, and is never reported as the holder.
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

from fastflight.errors import BusyError

# Nobody knows when a person's tool will be done: a request behind one waits for a short command at most, then fails.
LASTING_SECONDS = 1.0
# A holder that gives way may first have to finish what cannot be interrupted, such as opening a port.
GIVE_WAY_SECONDS = 15.0


class IdleClaim:
    """Lets a holder keep the lock while it uses it, or while nobody else asks for it.

    Nothing runs for this: the time is compared when somebody asks. All methods may be called from any thread.
    """

    def __init__(
        self, idle_seconds: float, leave: Callable[[float], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`leave` is called once, with the seconds that the holder was idle for, when it has to release the lock."""
        self.idle_seconds = idle_seconds
        self._leave = leave
        self._clock = clock
        self._lock = threading.Lock()
        self._used = clock()
        # Whether the holder was told to leave.
        self.lapsed = False

    def use(self) -> None:
        """The holder uses the lock now."""
        self._used = self._clock()

    def remaining(self) -> float:
        """Seconds until the claim may lapse, if the holder stays idle."""
        return max(0.0, self.idle_seconds - (self._clock() - self._used))

    def contest(self) -> bool:
        """Somebody else asks for the lock. True when the claim has lapsed, and the holder was told to leave."""
        with self._lock:
            idle = self._clock() - self._used
            if idle < self.idle_seconds and not self.lapsed:
                return False
            first, self.lapsed = not self.lapsed, True
        if first:
            self._leave(idle)
        return True


@dataclass(slots=True, eq=False)
class _Waiter:
    holder: str
    wake: Callable[[], object]
    # It may keep the lock for hours.
    lasting: bool = False
    # By which it loses the lock when it is idle; None for one that keeps it.
    claim: IdleClaim | None = None
    # Asks a background holder to give way; None for the others.
    ask: Callable[[], object] | None = None
    granted: bool = False


class Exclusive:
    """A lock on `where` (a device's name) that knows who holds it."""

    def __init__(self, where: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.where = where
        self._clock = clock
        self._lock = threading.Lock()
        self._current: _Waiter | None = None
        # How often it was handed over, not counting background holders.
        self.turns = 0
        # How often an idle holder had to leave because somebody else asked.
        self.put_out = 0
        self._since = 0.0
        self._waiters: deque[_Waiter] = deque()
        # Background waiters, which come after all others.
        self._background: deque[_Waiter] = deque()

    @property
    def holder(self) -> str | None:
        """The name of the holder; None while the lock is free or a background holder has it."""
        current = self._current
        return current.holder if current is not None and current.ask is None else None

    def acquire(self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None) -> None:
        """Become the holder within `timeout` seconds. Raises `BusyError`, which names the holder.

        With `lasting` the holder may stay for hours: others that ask meanwhile wait for `LASTING_SECONDS` at most,
        unless its `claim` has lapsed.
        """
        woken = threading.Event()
        waiter = _Waiter(holder, woken.set, lasting, claim)
        try:
            woken.wait(self._enter(waiter, timeout))
        except BaseException:  # KeyboardInterrupt in the main thread
            self._withdraw(waiter)
            raise
        self._check(waiter)

    async def aacquire(
        self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None
    ) -> None:
        """The same from a coroutine. A cancelled waiter never keeps the lock."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = _Waiter(holder, lambda: loop.call_soon_threadsafe(woken.set), lasting, claim)
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
            current = self._current
            if current is None:
                raise RuntimeError("released, but nobody holds it")
            self.put_out += current.claim is not None and current.claim.lapsed
            self._hand_over()

    @contextlib.contextmanager
    def held(
        self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None
    ) -> Iterator[None]:
        """Hold it for the length of a `with` block."""
        self.acquire(holder, timeout, lasting=lasting, claim=claim)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld(
        self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None
    ) -> AsyncIterator[None]:
        """Hold it for the length of an `async with` block."""
        await self.aacquire(holder, timeout, lasting=lasting, claim=claim)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld_until_wanted(self, holder: str) -> AsyncIterator[asyncio.Event]:
        """Hold it in the background for an `async with` block; waits without limit until nobody else wants it.

        Leave the block when the event is set: somebody else wants the lock.
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
        """Queue the waiter, or make it the holder. Returns for how many seconds it may wait."""
        with self._lock:
            (self._waiters if waiter.ask is None else self._background).append(waiter)
            current = self._current
            if current is None:
                self._hand_over()
                return timeout
            if waiter.ask is None and current.ask is not None and len(self._waiters) == 1:
                _call(current.ask)
                # Nobody else is in the way: an error that names a holder would be wrong.
                return max(timeout, GIVE_WAY_SECONDS)
        # Not under the lock, which a holder that leaves may need.
        if waiter.ask is None and current.claim is not None and current.claim.contest():
            return max(timeout, GIVE_WAY_SECONDS)
        return min(timeout, LASTING_SECONDS) if current.lasting else timeout

    def _check(self, waiter: _Waiter) -> None:
        """Return if the waiter has the lock, else withdraw it and raise `BusyError`."""
        with self._lock:
            if waiter.granted:
                return
            current, seconds = self._current, self._clock() - self._since
            if current is not None and current.ask is not None and self._waiters[0] is not waiter:
                current, seconds = self._waiters[0], 0.0  # the next holder
            self._waiters.remove(waiter)
        holder = current.holder if current is not None else ""
        hint = "Wait until it is done, or end it there"
        if current is not None and current.claim is not None:
            hint = (
                f"Close it where it is open, or ask again in {math.ceil(current.claim.remaining())} s: it gives the"
                f" device up when nothing was sent to it for {current.claim.idle_seconds:g} s"
            )
        raise BusyError(f"in use by {holder} for {seconds:.1f} s", holder=holder, where=self.where, hint=hint)

    def _withdraw(self, waiter: _Waiter) -> None:
        """Remove a waiter that has failed: nobody would release a lock that it is handed later."""
        queue = self._waiters if waiter.ask is None else self._background
        with self._lock:
            if waiter.granted:
                self._hand_over()
            elif waiter in queue:  # it is not, if its loop was closed before its turn
                queue.remove(waiter)

    def _hand_over(self) -> None:
        """Make the next waiter the holder. `_lock` is held."""
        self._current = None
        for queue in (self._waiters, self._background):
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
