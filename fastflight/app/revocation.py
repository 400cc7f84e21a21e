"""Checks that a caller's token still holds while something of theirs is open on a gateway: a WebSocket, a relay stream.

The server that knows the tokens runs elsewhere. `RevocationCheck.check` never waits: when the last answer is old, it
starts a question to the server in the background. It raises what the server answered, or `TransportError` when the
server has not answered for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastflight.access.identity import unproven
from fastflight.errors import AccessError, FastFlightError, TransportError
from fastflight.gateway.auth import Caller

# Between two questions about one caller. A revoked token stops working within this time and one round trip.
ASK_SECONDS = 5.0
# Longer than a restart of the server takes. A relay stream does not need the server and would otherwise stay open for
# ever. Time in which nothing is open does not count: callers are checked more often than the server is asked.
SILENT_SECONDS = 60.0

# Asks the server whose token a caller showed.
Identify = Callable[[Caller], Awaitable[Caller]]


@dataclass(slots=True)
class _Answer:
    """What the server last said about a caller; times are of the monotonic clock."""

    checked_at: float
    answered_at: float
    ask_at: float
    error: FastFlightError | None = None
    question: asyncio.Task[None] | None = None


class RevocationCheck:
    """The server's last answer for each caller with something open. Belongs to the gateway's event loop."""

    def __init__(self, identify: Identify, clock: Callable[[], float] = time.monotonic) -> None:
        self._identify = identify
        self._clock = clock
        self._answers: dict[Caller, _Answer] = {}

    def check(self, caller: Caller) -> None:
        """Raise if the token of `caller` was revoked, or grants something else than before; see the module."""
        now = self._clock()
        answer = self._answers.get(caller)
        if answer is None:
            self._forget_idle(now)
            answer = self._answers[caller] = _Answer(now, now, now)
        if now - answer.checked_at > ASK_SECONDS:
            answer.answered_at = now
        answer.checked_at = now
        if answer.question is None and now >= answer.ask_at:
            answer.question = asyncio.ensure_future(self._ask(caller, answer))
        if answer.error is not None:
            raise answer.error
        if caller.known and now - answer.answered_at > SILENT_SECONDS:
            raise TransportError("the server behind does not say whether this still holds", hint="Ask again later")

    async def _ask(self, caller: Caller, answer: _Answer) -> None:
        try:
            is_same = await self._identify(caller) == caller
        except AccessError as error:
            answer.error = error
        except FastFlightError:
            return  # the server may be unreachable for a moment
        else:
            answer.error = None if is_same else unproven()
            answer.answered_at = self._clock()
        finally:
            answer.ask_at = self._clock() + ASK_SECONDS
            answer.question = None

    def _forget_idle(self, now: float) -> None:
        """Forget callers that have had nothing open for a while."""
        idle = [caller for caller, answer in self._answers.items() if now - answer.checked_at > SILENT_SECONDS]
        for caller in idle:
            del self._answers[caller]
