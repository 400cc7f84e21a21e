"""Who asks over HTTP: from a request's `Authorization` header, or the certificate that TLS has proven, to a `Caller`.

The backend judges; what it said of a header is believed for `BELIEVED_SECONDS`, so that not each of many small requests
is judged anew. Of a header its digest is kept for that, and what a server elsewhere wants to see of it; for no longer.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.gateway.asgi import Header

# What was revoked is good for so long more, beside what the backend itself takes to notice.
BELIEVED_SECONDS = 1.0
# Callers that are believed at a time; of more, all are judged anew.
MAX_BELIEVED = 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they showed: for a server elsewhere, which judges by itself; empty where this is it."""

    identity: Identity
    authorization: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """To admission. All programs of this computer are one where nobody is known by name."""
        return self.identity.name if self.known else "http"

    @property
    def known(self) -> bool:
        """Whether the name is one that was proven; else all callers share it."""
        return self.identity is not ANYBODY

    @property
    def proven(self) -> bool:
        """Whether they have shown who they are."""
        return self.identity not in (ANYBODY, NOBODY)

    @property
    def known_name(self) -> str | None:
        """The name that was proven, if one was."""
        return self.identity.name if self.known else None


# Where no proof is wanted, and who gave none where it is.
ANYONE = Caller(ANYBODY)
STRANGER = Caller(NOBODY)


class Judge(Protocol):
    """What of a backend this needs."""

    @property
    def guarded(self) -> bool | None:
        """Whether it takes a proof to ask anything; None where only the server elsewhere knows."""

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """Who shows this header's value, or else this certificate's name; either is empty for none.

        `Unauthenticated`, in the same words whatever is wrong.
        """


class Callers:
    """Who asks of one gateway. Belongs to its loop."""

    def __init__(self, judge: Judge, clock: Callable[[], float] = time.monotonic) -> None:
        self._judge = judge
        self._clock = clock
        self._open = judge.guarded is False
        self._believed: dict[bytes, tuple[Caller, float]] = {}

    @property
    def stranger(self) -> Caller:
        """Who shows nothing, for the little that needs no proof."""
        return ANYONE if self._open else STRANGER

    def ready(self, headers: Iterable[Header], certificate: str = "") -> Caller | None:
        """Who asks, if that is known without asking; else None."""
        if self._open:
            return ANYONE
        shown = _shown(headers)
        if shown is None:
            return None
        caller, until = self._believed.get(_digest(shown, certificate), (None, 0.0))
        return caller if until > self._clock() else None

    async def of(self, headers: Iterable[Header], certificate: str = "") -> Caller:
        """Who asks. `Unauthenticated` for whoever has no good proof."""
        headers = list(headers)
        caller = self.ready(headers, certificate)
        if caller is not None:
            return caller
        shown = _shown(headers)
        if shown is None:
            raise unproven()
        caller = await self._judge.identify(shown, certificate)
        if len(self._believed) >= MAX_BELIEVED:
            self._believed.clear()
        key = _digest(shown, certificate)
        self._believed[key] = caller, self._clock() + BELIEVED_SECONDS
        # It may have the token in it, which is not to stay in memory.
        asyncio.get_running_loop().call_later(BELIEVED_SECONDS, self._believed.pop, key, None)
        return caller


def _shown(headers: Iterable[Header]) -> str | None:
    """The header's value, empty for none; None for several, which is no proof."""
    given = [value for name, value in headers if name == b"authorization"]
    return None if len(given) > 1 else given[0].decode("latin-1") if given else ""


def _digest(authorization: str, certificate: str) -> bytes:
    return hashlib.sha256(f"{authorization}\0{certificate}".encode()).digest()
