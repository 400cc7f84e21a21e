"""Identifies callers by the value of an Authorization header, or by the name of a certificate that TLS has verified.

The book of tokens and certificates is read again when it changes, so a revoked token is valid for at most
`LOOK_SECONDS` more. Streams call `still` to check that the proof with which they began is still valid. If the book
cannot be read or decoded, that is logged, and the last good book stays in use: a mistake while editing the file locks
nobody out and lets nobody in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from fastflight.access.identity import ANYBODY, Identity, unproven
from fastflight.access.tokens import Book, matching, parse_authorization
from fastflight.errors import FastFlightError

log = structlog.get_logger(__name__)


# How often the book is checked for changes. A check is a `stat` of one file.
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
        """`read` returns the book if it has changed since the last call, else None. The first call is made here.

        Raise what `read` raises, and `RequestError` if the data is not a book. `clock` returns seconds since 1970.
        """
        self._read = read
        self._clock = clock
        self._ticks = ticks
        self._looking = threading.Lock()
        self._next_look = ticks() + LOOK_SECONDS
        self._trouble = ""
        self._take(Book.decode(read() or b""))

    def authenticate(self, authorization: str) -> Identity:
        """Return the identity for the value of an Authorization header.

        Raise `Unauthenticated`, with the same text whatever is wrong.
        """
        self._look()
        name, text = parse_authorization(authorization)
        token = matching(self._tokens, text)
        if token is None or name not in ("", token.name) or not token.good_at(self._clock()):
            raise unproven()
        return token.identity

    def certified(self, name: str) -> Identity:
        """Return the identity for a certificate's name, which TLS has verified.

        Raise `Unauthenticated` if the name is not in the book.
        """
        self._look()
        identity = self._certificates.get(name)
        if identity is None:
            raise unproven()
        return identity

    def still(self, identity: Identity) -> bool:
        """Whether the identity's token or certificate is still valid and has the same scopes."""
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
                log.error("the tokens cannot be read: the last good ones stay in use", error=self._trouble)
        finally:
            self._looking.release()

    def _take(self, book: Book) -> None:
        self._tokens = {token.id: token for token in book.tokens}
        self._certificates = {each.name: each.identity for each in book.certificates}
