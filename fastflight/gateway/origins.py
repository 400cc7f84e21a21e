"""Decides which requests are accepted, by their `Host` header and the origin of the page that sends them.

Every page that the user's browser shows can reach a server on loopback. So a request must name this computer as its
host, which a page that rebinds its own name to 127.0.0.1 does not. A request of a page must come from a page of the
gateway or of an allowed origin: browsers say so in `Origin` or `Sec-Fetch-Site`.

Only allowed origins get CORS headers (fetch standard), each only its own, never `*`. There are no cookies.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflight.gateway.asgi import Header
from fastflight.gateway.errors import HttpRefusal
from fastflight.transport.url_parts import is_loopback

# Host headers whose verdict is cached; there are few spellings of one address.
MAX_KNOWN_HOSTS = 64
# In place of a header that was sent twice: matches no host and no origin.
SEVERAL = b","
# The headers of the answer to a preflight request: the methods and request headers of the routes, and for how many
# seconds a browser may cache the permission.
PREFLIGHT_HEADERS: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
    (
        b"access-control-allow-headers",
        b"accept, authorization, content-type, if-match, if-none-match, if-range, range",
    ),
    (b"access-control-max-age", b"600"),
)
# Answer headers that a page may not read without permission.
EXPOSED_HEADERS = b"accept-ranges, content-disposition, content-range, etag, fastflight-path, retry-after"


class OriginPolicy:
    """Accepts or refuses requests; see the module."""

    def __init__(self, origins: Iterable[str] = (), hosts: Iterable[str] = (), *, secure: bool = False) -> None:
        """`origins`: other origins whose pages are allowed, as `https://host:port`.

        `hosts`: names by which other computers reach this one; `secure`: served over TLS.
        """
        self._origins = frozenset(origin.encode() for origin in origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._scheme = b"https://" if secure else b"http://"
        # Verdicts by Host header; bounded, since clients choose them.
        self._known: dict[bytes, bool] = {}

    def allowed_origin(self, headers: Iterable[Header]) -> bytes | None:
        """Return the request's origin if it is an allowed one, else None."""
        origin = next((value for name, value in headers if name == b"origin"), b"")
        return origin if origin in self._origins else None

    def cors_headers(self, origin: bytes | None) -> list[Header]:
        """Return the headers of an answer that pages of the allowed `origin` may read; None: of no other origin."""
        vary = [(b"vary", b"origin")] if self._origins else []
        if origin is None:
            return vary
        return [
            *vary,
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
        ]

    def check(self, headers: Iterable[Header]) -> None:
        """Raise `HttpRefusal` for a request that a page of a strange origin may have sent."""
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
        # `same-site` is another port of this computer: its pages may link here, but not load anything from here.
        if not origin and (site == b"cross-site" or (site == b"same-site" and mode != b"navigate")):
            raise HttpRefusal(
                403, "pages from elsewhere may not ask", where="Sec-Fetch-Site", hint="Open the address itself"
            )

    def _is_here(self, host: bytes) -> bool:
        known = self._known.get(host)
        if known is None:
            name = _name_of(host.decode("latin-1"))
            known = name in self._hosts or is_loopback(name)
            if len(self._known) < MAX_KNOWN_HOSTS:
                self._known[host] = known
        return known

    def _known_hosts(self) -> str:
        if self._hosts:
            return f"Ask for {', '.join(sorted(self._hosts))}, or name it with --http-host when serving"
        return "Ask for 127.0.0.1, localhost or [::1]"


def _name_of(host: str) -> str:
    """Return a Host header without its port."""
    name, bracket, _ = host.removeprefix("[").partition("]")
    if not bracket:
        name = host.rpartition(":")[0] or host
    return name.lower()


def is_preflight(method: str, headers: Iterable[Header]) -> bool:
    """Return whether this is a CORS preflight request."""
    return method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)
