"""Authenticates HTTP requests: turns the `Authorization` header, or the verified client certificate, into a `Caller`.

The backend decides. Its decision is cached for `CACHE_SECONDS`, so that many small requests do not each cost one.
The key is a digest of the header.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.gateway.asgi import Header

# A revoked token stays valid for up to this long, in addition to the time that the backend takes to notice.
CACHE_SECONDS = 1.0
# Cached decisions; when there are more, the cache is emptied.
MAX_CACHED = 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """A client, by its identity."""

    identity: Identity

    @property
    def name(self) -> str:
        """The name that admission limits count by. Without authentication all clients share one."""
        return self.identity.name if self.known else "http"

    @property
    def known(self) -> bool:
        """Whether the name is the caller's own; without authentication all callers share one."""
        return self.identity is not ANYBODY

    @property
    def proven(self) -> bool:
        """Whether the caller has authenticated."""
        return self.identity not in (ANYBODY, NOBODY)

    @property
    def known_name(self) -> str | None:
        """The caller's own name, or None without authentication."""
        return self.identity.name if self.known else None


# The caller where no authentication is required, and the unauthenticated caller where it is.
ANYONE = Caller(ANYBODY)
UNAUTHENTICATED = Caller(NOBODY)


class IdentityProvider(Protocol):
    """The part of a `Backend` that authenticates."""

    @property
    def guarded(self) -> bool:
        """Whether callers must authenticate."""

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """Return the caller for an `Authorization` value or, if that is empty, for a certificate's name.

        Raises `Unauthenticated`, with the same text whatever is wrong.
        """


class RequestAuthenticator:
    """Authenticates the requests of one gateway. Belongs to its loop."""

    def __init__(self, provider: IdentityProvider) -> None:
        self._provider = provider
        self._open = not provider.guarded
        self._cached: dict[bytes, tuple[Caller, float]] = {}

    @property
    def unauthenticated(self) -> Caller:
        """The caller of requests that need no authentication."""
        return ANYONE if self._open else UNAUTHENTICATED

    async def authenticate(self, headers: Iterable[Header], certificate: str = "") -> Caller:
        """Return the caller; raise `Unauthenticated` if the request does not authenticate."""
        if self._open:
            return ANYONE
        authorization = _authorization(headers)
        if authorization is None:
            raise unproven()
        key = _digest(authorization, certificate)
        known, until = self._cached.get(key, (None, 0.0))
        if known is not None and until > time.monotonic():
            return known
        caller = await self._provider.identify(authorization, certificate)
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[key] = caller, time.monotonic() + CACHE_SECONDS
        asyncio.get_running_loop().call_later(CACHE_SECONDS, self._cached.pop, key, None)
        return caller


def _authorization(headers: Iterable[Header]) -> str | None:
    """Return the `Authorization` header, empty if there is none; None for several, which are refused."""
    values = [value for name, value in headers if name == b"authorization"]
    return None if len(values) > 1 else values[0].decode("latin-1") if values else ""


def _digest(authorization: str, certificate: str) -> bytes:
    return hashlib.sha256(f"{authorization}\0{certificate}".encode()).digest()


def certificate_name(tls: ssl.SSLObject | None) -> str:
    """Return the name in a verified client certificate: its first alternative name, else its common name.

    gRPC gives the Flight edge the same name. Empty if there is none, or if the first alternative name is of another
    kind than DNS, email, URI and IP address.
    """
    certificate: Any = (tls.getpeercert() if tls is not None else None) or {}
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            with contextlib.suppress(ValueError):
                return str(ipaddress.ip_address(value))
        return str(value) if kind in ("DNS", "email", "URI") else ""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str((common or [""])[0])
