"""One-time tickets, with which a page opens a WebSocket as an authenticated caller.

A page cannot add headers to the upgrade of a WebSocket. So it first gets a ticket with an authenticated request, and
then opens the WebSocket with the ticket in its URL. The first use spends a ticket, even for the wrong purpose. When the
maximum number of tickets is reached, a caller with few tickets replaces the oldest one of the caller that has most.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastflight.access.identity import Identity
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.http.quota import Quota
from fastflight.service.requests import Request

# From issuing a ticket to its use: a few round trips of a slow phone.
LIFETIME_SECONDS = 30.0
# Unused tickets. Each holds a request; a page needs a handful.
MAX_TICKETS = 256
# Unused tickets of one name: enough for several pages of one person, and nobody can take them all.
MAX_TICKETS_OF_ONE = 32
# The ticket's number, which finds it, and its secret, which is compared.
NUMBER_BYTES, SECRET_BYTES = 8, 24


@dataclass(frozen=True, slots=True)
class Grant:
    """What a ticket allows: `caller` may open the WebSocket of kind `use`, for `request` if that is not None."""

    use: str
    request: Request | None
    caller: Identity


class Tickets:
    """The issued tickets that are not used yet. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By number: secret, expiry time and grant. The next to expire comes first.
        self._open: dict[str, tuple[str, float, Grant]] = {}
        self._places: Quota[str] = Quota(
            MAX_TICKETS,
            MAX_TICKETS_OF_ONE,
            "tickets that wait to be used",
            retry_seconds=LIFETIME_SECONDS,
            hint=f"Each expires after {LIFETIME_SECONDS:.0f} s",
        )

    def issue(self, grant: Grant) -> str:
        """Return a ticket for `grant`; raise `ResourceExhausted` if its caller, or all together, have too many."""
        now = self._clock()
        for number, (_, until, _) in list(self._open.items()):
            if until > now:
                break
            self._remove(number)
        number, secret = secrets.token_urlsafe(NUMBER_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        replaced = self._places.take(grant.caller.own_name, number)
        if replaced is not None:
            del self._open[replaced]
        self._open[number] = secret, now + LIFETIME_SECONDS, grant
        return f"{number}.{secret}"

    def redeem(self, ticket: str, use: str) -> Grant:
        """Use up `ticket` and return its grant; raise `HttpRefusal` if it is not valid or not for `use`."""
        number, _, secret = ticket.partition(".")
        expected, until, grant = self._remove(number)
        matches = hmac.compare_digest(expected.encode(), secret.encode(errors="replace"))
        if grant is None or not matches or until <= self._clock():
            raise HttpRefusal(
                403, "unknown, used or expired", where="ticket", hint="Ask for one at POST /tickets, and use it once"
            )
        if grant.use != use:
            raise wrong_ticket(f"this one is for {grant.use!r}")
        return grant

    def _remove(self, number: str) -> tuple[str, float, Grant | None]:
        """Remove a ticket; return its secret, expiry time and grant, None if there is no such ticket."""
        ticket = self._open.pop(number, None)
        if ticket is None:
            return "", 0.0, None
        self._places.leave(ticket[2].caller.own_name, number)
        return ticket


def wrong_ticket(hint: str) -> HttpRefusal:
    """Return the error for a ticket that is used for another request than it was issued for."""
    return HttpRefusal(403, "the ticket is for another request", where="ticket", hint=hint)
