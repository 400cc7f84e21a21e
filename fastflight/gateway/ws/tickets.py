"""One-time tickets: what a client may do on a WebSocket, asked for by a request that could say who it is.

A browser cannot give a WebSocket a header of its own. So it asks for a ticket first, as for anything else, and opens
the WebSocket with that in its address. A ticket is used up by whoever shows it first, also where it does not fit. Where
as many wait as there may be, the oldest of the name that has most makes room for one of a name with fewer.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastflight.gateway.callers import Caller
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.http.quota import Quota
from fastflight.service.requests import Request

# From asking to opening: a slow phone's few round trips.
LIFETIME_SECONDS = 30.0
# Tickets that nobody has used yet. Each is a request; a page needs a handful.
MAX_TICKETS = 256
# Of these, of one name: some pages of one person, and nobody can take them all.
MAX_TICKETS_OF_ONE = 32
# The ticket's number, which finds it, and its secret, which is compared.
NUMBER_BYTES, SECRET_BYTES = 8, 24


@dataclass(frozen=True, slots=True)
class Grant:
    """What a ticket is for: a `use` (the name of a WebSocket's path), of a request where it is for one, by `caller`."""

    use: str
    request: Request | None
    caller: Caller


class Tickets:
    """Those that were issued and not yet used. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # In the order of their ends.
        self._open: dict[str, tuple[str, float, Grant]] = {}
        self._places: Quota[str] = Quota(
            MAX_TICKETS,
            MAX_TICKETS_OF_ONE,
            "tickets that wait to be used",
            retry_seconds=LIFETIME_SECONDS,
            hint=f"Each is given up after {LIFETIME_SECONDS:.0f} s",
        )

    def issue(self, grant: Grant) -> str:
        """A ticket for `grant`; `ResourceExhausted` while too many wait to be used, of its caller's name or in all."""
        now = self._clock()
        for number, (_, until, _) in list(self._open.items()):
            if until > now:
                break
            self._taken(number)
        yielding = self._places.wanted(grant.caller.known_name)
        if yielding:
            self._taken(yielding[0])
        number, secret = secrets.token_urlsafe(NUMBER_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        self._open[number] = secret, now + LIFETIME_SECONDS, grant
        self._places.take(grant.caller.known_name, number)
        return f"{number}.{secret}"

    def redeem(self, ticket: str, use: str) -> Grant:
        """What `ticket` grants, once; `HttpRefusal` unless it grants that `use`."""
        number, _, secret = ticket.partition(".")
        kept, until, grant = self._taken(number)
        known = hmac.compare_digest(kept.encode(), secret.encode(errors="replace"))
        if grant is None or not known or until <= self._clock():
            raise HttpRefusal(
                403, "unknown, used or expired", where="ticket", hint="Ask for one at POST /tickets, and use it once"
            )
        if grant.use != use:
            raise other(f"this one is for {grant.use!r}")
        return grant

    def _taken(self, number: str) -> tuple[str, float, Grant | None]:
        """Secret, end and grant of a ticket, which is there no more."""
        kept = self._open.pop(number, None)
        if kept is None:
            return "", 0.0, None
        self._places.leave(kept[2].caller.known_name, number)
        return kept


def other(hint: str) -> HttpRefusal:
    """A ticket that does not fit where it is shown."""
    return HttpRefusal(403, "the ticket is for another request", where="ticket", hint=hint)
