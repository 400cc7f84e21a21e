"""Whose requests are taken: by the host that they ask for, and the page that they come from.

A server on loopback is reachable by every page that the user's browser shows. So a request must name this computer as
its host (a page that rebinds its own name to 127.0.0.1 does not), and one that a page sends must be from a page of the
gateway itself or of an allowed origin: a browser always says, in `Origin` or in `Sec-Fetch-Site`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from fastflight.gateway.asgi import Header
from fastflight.gateway.status import HttpRefusal

# One per spelling of the address, of which there are few.
MAX_KNOWN_HOSTS = 64
# What stands for a header that was sent twice, where it must be one: no host and no origin.
SEVERAL = b","


class Door:
    """Whose requests are taken: by the host they ask for, and the page they come from."""

    def __init__(self, origins: Iterable[str] = (), hosts: Iterable[str] = (), *, secure: bool = False) -> None:
        """`origins`: pages of other origins that may ask, as `https://host:port`.

        `hosts`: names by which this computer is asked for from elsewhere; `secure`: over TLS.
        """
        self._origins = frozenset(origin.encode() for origin in origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._scheme = b"https://" if secure else b"http://"
        # Host headers that were looked at; bounded, since a client chooses them.
        self._known: dict[bytes, bool] = {}

    @property
    def has_others(self) -> bool:
        """Whether pages of any other origin may ask."""
        return bool(self._origins)

    def other(self, headers: Iterable[Header]) -> bytes | None:
        """The other origin whose page asks, if it is an allowed one."""
        origin = next((value for name, value in headers if name == b"origin"), b"")
        return origin if origin in self._origins else None

    def check(self, headers: Iterable[Header]) -> None:
        """`HttpRefusal` for a request that a stranger's page may have sent."""
        host = origin = site = mode = b""
        for name, value in headers:
            if name == b"host":
                host = SEVERAL if host else value
            elif name == b"origin":
                origin = SEVERAL if origin else value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
        if not self._is_here(host):
            raise HttpRefusal(421, "not a name of this computer", where="Host", hint=self._known_hosts())
        if origin and origin != self._scheme + host and origin not in self._origins:
            raise HttpRefusal(
                403, "pages from elsewhere may not ask", where="Origin", hint="Allow the origin when serving"
            )
        # Of another port of this computer: its pages may have a link here, and may have nothing loaded from here.
        if not origin and (site == b"cross-site" or (site == b"same-site" and mode != b"navigate")):
            raise HttpRefusal(
                403, "pages from elsewhere may not ask", where="Sec-Fetch-Site", hint="Open the address itself"
            )

    def _is_here(self, host: bytes) -> bool:
        known = self._known.get(host)
        if known is None:
            name = _name_of(host.decode("latin-1"))
            known = name in self._hosts or _is_loopback(name)
            if len(self._known) < MAX_KNOWN_HOSTS:
                self._known[host] = known
        return known

    def _known_hosts(self) -> str:
        if self._hosts:
            return f"Ask for {', '.join(sorted(self._hosts))}, or name it with --http-host when serving"
        return "Ask for 127.0.0.1, localhost or [::1]"


def _name_of(host: str) -> str:
    """A Host header without its port."""
    name, bracket, _ = host.removeprefix("[").partition("]")
    if not bracket:
        name = host.rpartition(":")[0] or host
    return name.lower()


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
