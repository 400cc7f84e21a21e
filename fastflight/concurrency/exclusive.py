"""A fair lock with a named holder, for coroutines of any loop.

`release` hands the lock to the waiter that has waited longest, so no newcomer gets in between. A waiter whose timeout
or cancellation comes at the moment when it gets the lock either keeps the lock and returns, or passes it on.

Two kinds of holders give the lock up early. A holder with an `IdleClaim` must release the lock when it has not used it
for a while and another waiter asks for it. A background holder (`aheld_until_wanted`) gets the lock after all other
waiters. The first other waiter asks it to give way. It is never reported as the holder.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastflight.concurrency.channel import loop_event
from fastflight.errors import BusyError

# Nobody knows when a person's tool will be done. A waiter behind it waits only as long as a short command takes.
LASTING_SECONDS = 1.0
# A holder that gives way may first have to finish what cannot be interrupted, such as opening a port.
GIVE_WAY_SECONDS = 15.0


class IdleClaim:
    """Lets a holder keep the lock while it uses the lock, or while nobody else asks for it.

    There is no timer: the idle time is checked when another waiter asks. All methods may be called from any thread.
    """

    def __init__(
        self, idle_seconds: float, leave: Callable[[float], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`leave` is called once, with the holder's idle time in seconds, when the holder must release the lock."""
        self.idle_seconds = idle_seconds
        self._leave = leave
        self._clock = clock
        self._lock = threading.Lock()
        self._used = clock()
        # Whether the holder was asked to release the lock.
        self.lapsed = False

    def use(self) -> None:
        """Note that the holder uses the lock now."""
        self._used = self._clock()

    def remaining(self) -> float:
        """Return the seconds until the claim may lapse, if the holder stays idle."""
        return max(0.0, self.idle_seconds - (self._clock() - self._used))

    def contest(self) -> bool:
        """Note that another caller wants the lock. Return whether the claim has lapsed.

        If it lapses in this call, the holder is asked to release the lock (`leave`).
        """
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
    # Whether it may keep the lock for hours.
    lasting: bool = False
    # None for a holder that keeps the lock even if it is idle.
    claim: IdleClaim | None = None
    # Asks a background holder to give way; None for other waiters.
    ask: Callable[[], object] | None = None
    granted: bool = False


class Exclusive:
    """A lock on `where` (a device's name) that knows who holds it."""

    def __init__(self, where: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.where = where
        self._clock = clock
        self._lock = threading.Lock()
        self._current: _Waiter | None = None
        # How often a waiter got the lock, not counting background holders.
        self.turns = 0
        # How often an idle holder had to release the lock for another waiter.
        self.evicted = 0
        self._since = 0.0
        self._waiters: deque[_Waiter] = deque()
        # Background waiters, which come after all others.
        self._background: deque[_Waiter] = deque()

    @property
    def holder(self) -> str | None:
        """The name of the holder; None while the lock is free or a background holder has it."""
        current = self._current
        return current.holder if current is not None and current.ask is None else None

    @property
    def is_lasting(self) -> bool:
        """Whether the holder may keep the lock for hours, as a person's terminal does."""
        current = self._current
        return current is not None and current.lasting

    async def aacquire(
        self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None
    ) -> None:
        """Wait for the lock for at most `timeout` seconds. If it is not free by then, raise `BusyError`.

        `holder` is the name of the caller: the `BusyError` that other callers get meanwhile contains it.
        A `lasting` holder may keep the lock for hours: meanwhile other waiters wait for at most `LASTING_SECONDS`,
        unless the holder's `claim` has lapsed. A cancelled waiter never keeps the lock.
        """
        woken, wake = loop_event()
        waiter = _Waiter(holder, wake, lasting, claim)
        try:
            patience = self._enter(waiter, timeout)
            if not waiter.granted:
                # Not `wait_for`: before Python 3.12 it can lose a cancellation that comes at the moment of the wake-up.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await woken.wait()
        except BaseException:
            self._withdraw(waiter)
            raise
        self._check(waiter)

    def release(self) -> None:
        """Hand the lock to the waiter that has waited longest, or leave it free. Only the holder may call this."""
        with self._lock:
            current = self._current
            if current is None:
                raise RuntimeError("released, but nobody holds it")
            self.evicted += current.claim is not None and current.claim.lapsed
            self._hand_over()

    @contextlib.asynccontextmanager
    async def aheld(
        self, holder: str, timeout: float, *, lasting: bool = False, claim: IdleClaim | None = None
    ) -> AsyncIterator[None]:
        """Hold the lock in an `async with` block."""
        await self.aacquire(holder, timeout, lasting=lasting, claim=claim)
        try:
            yield
        finally:
            self.release()

    @contextlib.asynccontextmanager
    async def aheld_until_wanted(self, holder: str) -> AsyncIterator[asyncio.Event]:
        """Hold the lock in the background, in an `async with` block. Wait without limit until nobody else wants it.

        Leave the block when the event is set: another waiter wants the lock.
        """
        (woken, wake), (wanted, ask) = loop_event(), loop_event()
        waiter = _Waiter(holder, wake, ask=ask)
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
                # Only the background holder is in the way, and it is not reported as a holder: give it time to leave.
                return max(timeout, GIVE_WAY_SECONDS)
        # Outside `_lock`, because `contest` may make the holder release, which takes `_lock`.
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
        """Remove a waiter that gives up. If it has got the lock meanwhile, pass the lock on.

        Otherwise it could be handed the lock later, and nobody would release it.
        """
        queue = self._waiters if waiter.ask is None else self._background
        with self._lock:
            if waiter.granted:
                self._hand_over()
            elif waiter in queue:  # it is not, if its loop was closed before its turn
                queue.remove(waiter)

    def _hand_over(self) -> None:
        """Make the next waiter the holder. The caller holds `_lock`."""
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
    """Call `callback`. Return False if its loop is closed, so that it will never run again."""
    try:
        callback()
    except RuntimeError:
        return False
    return True
