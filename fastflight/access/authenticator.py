"""Who asks: from an Authorization header's value, or a certificate's name that TLS has proven, to an `Identity`.

The book is looked at again while the server runs: what was revoked is good for `LOOK_SECONDS` more at most, and streams
ask by `still` whether what they began with holds. One that cannot be read, or says nothing that can be understood, is
logged, and the last good one stays: a slip of an editor locks nobody out, and lets nobody in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from fastflight.access.identity import ANYBODY, Identity, unproven
from fastflight.access.tokens import Book, matching, shown
from fastflight.errors import FastFlightError

log = structlog.get_logger(__name__)


# A look is a `stat` of one file.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate chain and key of a server, as PEM.

    With `client_ca`, only clients with a certificate that one of these authorities has issued may make calls.
    """

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None


class Authenticator:
    """Identifies callers by the tokens and certificates of a book. Never waits: threads and coroutines may use it."""

    def __init__(
        self,
        read: Callable[[], bytes | None],
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` gives the book where it has changed since the last time, else None; it must give one now.

        Raises what `read` raises, and `RequestError` for what is no book. `clock`: the time of the epoch.
        """
        self._read = read
        self._clock = clock
        self._ticks = ticks
        self._looking = threading.Lock()
        self._next_look = ticks() + LOOK_SECONDS
        self._trouble = ""
        self._take(Book.decode(read() or b""))

    def authenticate(self, authorization: str) -> Identity:
        """Who shows this. `Unauthenticated`, in the same words whatever is wrong with it."""
        self._look()
        name, text = shown(authorization)
        token = matching(self._tokens, text)
        if token is None or name not in ("", token.name) or not token.good_at(self._clock()):
            raise unproven()
        return token.identity

    def certified(self, name: str) -> Identity:
        """Who has the certificate of this name, which TLS has proven. `Unauthenticated` if the book has none such."""
        self._look()
        identity = self._certificates.get(name)
        if identity is None:
            raise unproven()
        return identity

    def still(self, identity: Identity) -> bool:
        """Whether what was proven holds, and grants what it did."""
        if identity is ANYBODY:
            return True
        self._look()
        token = self._tokens.get(identity.credential)
        if token is not None:
            return token.identity == identity and token.good_at(self._clock())
        return self._certificates.get(identity.name) == identity

    def _look(self) -> None:
        if self._ticks() < self._next_look or not self._looking.acquire(blocking=False):
            return
        try:
            self._next_look = self._ticks() + LOOK_SECONDS
            changed = self._read()
            if changed is not None:
                self._take(Book.decode(changed))
                log.info("the tokens were read again", tokens=len(self._tokens), certificates=len(self._certificates))
            self._trouble = ""
        except FastFlightError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("the tokens cannot be read: those that were known stay", error=self._trouble)
        finally:
            self._looking.release()

    def _take(self, book: Book) -> None:
        self._tokens = {token.id: token for token in book.tokens}
        self._certificates = {each.name: each.identity for each in book.certificates}
