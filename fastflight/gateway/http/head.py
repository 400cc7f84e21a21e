"""Checks the head of a request before the request is handled (RFC 9112, 3 and 6).

The parser, httptools, checks the syntax. This module checks what the parser leaves to its user: limits, exactly one
`Host`, the transfer coding, and targets in absolute form.
"""

from __future__ import annotations

import httptools

from fastflight.gateway.asgi import Header
from fastflight.gateway.errors import HttpRefusal

# A request's first line and headers: a long path, cookies of other servers on this computer.
MAX_HEAD_BYTES = 64 * 1024
# Browsers send about 20, proxies add some. uvicorn's WebSockets take as many.
MAX_HEADERS = 128
SCHEMES = (b"http", b"https")


class Head:
    """Checks one request head. Its methods raise `HttpRefusal`, and store it in `refusal` as the parser hides it."""

    def __init__(self) -> None:
        self.refusal: HttpRefusal | None = None
        self._bytes = 0
        self._headers = 0
        self._hosts = 0
        self._codings: list[bytes] = []

    def target(self, part: bytes) -> None:
        """Check the next part of the request's target."""
        self._bytes += len(part)
        if self._bytes > MAX_HEAD_BYTES:
            raise self._refused(414, f"more than {MAX_HEAD_BYTES} bytes", where="target", hint="Send less")

    def header(self, name: bytes, value: bytes) -> None:
        """Check the next header, whose name is in lower case."""
        self._bytes += len(name) + len(value) + 4
        self._headers += 1
        if self._bytes > MAX_HEAD_BYTES:
            raise self._refused(431, f"more than {MAX_HEAD_BYTES} bytes", where="head", hint="Send less")
        if self._headers > MAX_HEADERS:
            raise self._refused(431, f"more than {MAX_HEADERS} headers", where="head", hint="Send fewer")
        if name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding":
            self._codings.append(value.strip().lower())

    def check(self, version: str) -> None:
        """Check the complete head."""
        if self._hosts != 1:
            many = "there is none" if not self._hosts else f"there are {self._hosts}"
            raise self._refused(400, many, where="Host", hint="Send one")
        if not self._codings:
            return
        if version != "1.1":
            raise self._refused(400, f"not a header of HTTP/{version}", where="Transfer-Encoding", hint="Use HTTP/1.1")
        if self._codings != [b"chunked"]:
            raise self._refused(501, "only chunked is supported", where="Transfer-Encoding", hint="Use chunked")

    def in_origin_form(self, url: bytes, headers: list[Header]) -> tuple[bytes, list[Header]]:
        """Return target and headers of a request, with a target in absolute form turned into a path.

        Clients send that form to proxies. The host in the target then replaces the `Host` header. Other targets are
        returned unchanged.
        """
        if url.startswith(b"/") or b"://" not in url.partition(b"?")[0]:
            return url, headers
        parsed = httptools.parse_url(url)
        rest = url.partition(b"://")[2]
        authority = rest[: min((rest.find(mark) for mark in (b"/", b"?", b"#") if mark in rest), default=len(rest))]
        if parsed.schema.lower() not in SCHEMES or b"@" in authority or not authority:
            raise self._refused(
                400, "not a URL of this server", where="target", hint="Ask for a path: GET /devices HTTP/1.1"
            )
        path = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
        return path, [(name, authority if name == b"host" else value) for name, value in headers]

    def _refused(self, status: int, what: str, *, where: str, hint: str) -> HttpRefusal:
        self.refusal = HttpRefusal(status, what, where=where, hint=hint)
        return self.refusal
