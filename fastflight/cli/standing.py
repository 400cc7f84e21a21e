"""Whether what callers have proven to a server elsewhere still holds, for what stays open: sockets, and the relay's.

`check` is asked again and again for as long as something is open, and never waits: where it is time, it has the server
asked once more who that is. It raises what the server said, or `TransportError` where that said nothing for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastflight.access.identity import unproven
from fastflight.errors import AccessError, FastFlightError, TransportError
from fastflight.gateway.callers import Caller

# From one answer to the next question, a small call for each caller who has something open: what is revoked ends
# within so long, and what the server and those who look take to notice.
ASK_SECONDS = 5.0
# A server that is started again is back by then. A relay's connection has no need of it, and would stay for ever. While
# nothing is open nobody asks, so that time is no silence: who has something open looks more often than it is asked.
SILENT_SECONDS = 60.0

# Asks who shows what a caller showed.
Identify = Callable[[Caller], Awaitable[Caller]]


@dataclass(slots=True)
class _Word:
    """What the server said last."""

    checked: float
    heard: float
    next: float
    error: FastFlightError | None = None
    asking: asyncio.Task[None] | None = None


class Standing:
    """What is known of those for whom something is open. Belongs to the gateway's loop."""

    def __init__(self, identify: Identify, clock: Callable[[], float] = time.monotonic) -> None:
        self._identify = identify
        self._clock = clock
        self._words: dict[Caller, _Word] = {}

    def check(self, caller: Caller) -> None:
        """Raise once what `caller` had proven holds no more, or grants something else; see above."""
        now = self._clock()
        word = self._words.get(caller)
        if word is None:
            self._forget(now)
            word = self._words[caller] = _Word(now, now, now)
        if now - word.checked > ASK_SECONDS:
            word.heard = now
        word.checked = now
        if word.asking is None and now >= word.next:
            word.asking = asyncio.ensure_future(self._ask(caller, word))
        if word.error is not None:
            raise word.error
        if caller.known and now - word.heard > SILENT_SECONDS:
            raise TransportError("the server behind does not say whether this still holds", hint="Ask again later")

    async def _ask(self, caller: Caller, word: _Word) -> None:
        try:
            same = await self._identify(caller) == caller
        except AccessError as error:
            word.error = error
        except FastFlightError:
            return  # it may be away for a moment
        else:
            word.error = None if same else unproven()
            word.heard = self._clock()
        finally:
            word.next = self._clock() + ASK_SECONDS
            word.asking = None

    def _forget(self, now: float) -> None:
        """Those of whom nothing has been open for a while."""
        for caller in [caller for caller, word in self._words.items() if now - word.checked > SILENT_SECONDS]:
            del self._words[caller]
