"""The first ASGI application of the gateway: checks and authenticates each request before all others.

Each request's host and origin are checked (`gateway.origins`). If the backend requires authentication, requests without
it are refused here, before their content is read; only `/health`, `/health/ready` and the files of the page are public.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from fastflight.access.identity import ANYBODY, NOBODY, Identity, unproven
from fastflight.errors import Unauthenticated
from fastflight.gateway.asgi import (
    CALLER,
    CERTIFICATE,
    EMPTY,
    AnswerSender,
    Application,
    Header,
    Receive,
    Scope,
    Send,
)
from fastflight.gateway.errors import HttpRefusal, send_error
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.origins import PREFLIGHT_HEADERS, OriginPolicy, is_preflight
from fastflight.gateway.ws.sockets import Sockets

# Methods whose content is used.
WITH_CONTENT = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class GatewayMiddleware:
    """The ASGI application in front of `behind`."""

    def __init__(
        self,
        policy: OriginPolicy,
        behind: Application,
        sockets: Sockets | None = None,
        identify: Callable[[str, str], Identity] | None = None,
        public: Collection[str] = (),
    ) -> None:
        """`sockets` serves WebSockets; None: there are none.

        `identify` returns the caller for an `Authorization` value and a certificate's name, or raises
        `Unauthenticated`; None: everybody is accepted. The `public` paths need no authentication.
        """
        self._policy = policy
        self._sockets = sockets
        self._identify = identify
        self._public = frozenset(public)
        self._behind = behind
        # `listen` limits and counts the connections. Both are read by the metrics.
        self.connections = Connections()
        self.answers: Counter[tuple[str, int]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = sender = AnswerSender(scope, receive, send, self.answers)
        receive = sender.receive
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        try:
            _check_framing(scope)
            self._policy.check(scope["headers"])
        except HttpRefusal as error:
            await send_error(send, error)
            return
        origin = self._policy.allowed_origin(scope["headers"])
        sender.headers += self._policy.cors_headers(origin)
        if origin is not None and is_preflight(scope["method"], scope["headers"]):
            await send({"type": "http.response.start", "status": 204, "headers": PREFLIGHT_HEADERS})
            await send(EMPTY)
            return
        try:
            scope[CALLER] = self._caller(scope)
            _check_coding(scope)
        except Exception as error:
            await send_error(send, error)
            return
        await self._behind(scope, receive, send)

    def _caller(self, scope: Scope) -> Identity:
        """Return the caller; raise `Unauthenticated` if there is none and the path is not public."""
        if self._identify is None:
            return ANYBODY
        if scope["path"] in self._public:
            return NOBODY
        return self._identify(_authorization(scope["headers"]), scope.get("state", {}).get(CERTIFICATE, ""))

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and authenticate an upgrade to a WebSocket, then pass it on. A refused one is never accepted."""
        try:
            self._policy.check(scope["headers"])
            if self._sockets is None:
                raise HttpRefusal(404, "no WebSocket there", where=scope["path"])
            with contextlib.suppress(Unauthenticated):  # then it needs a ticket
                scope[CALLER] = self._caller(scope)
        except Exception as error:
            await send_error(send, error, "websocket.http")
            return
        await self._sockets(scope, receive, send)

    async def end(self, timeout: float) -> None:
        """Close the WebSockets: they have `timeout` seconds to end by themselves, then they are told and closed."""
        if self._sockets is not None:
            await self._sockets.end(timeout)


def _authorization(headers: Iterable[Header]) -> str:
    """Return the `Authorization` header; empty if there is none. Raise `Unauthenticated` for several."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) > 1:
        raise unproven()
    return values[0].decode("latin-1") if values else ""


def _check_framing(scope: Scope) -> None:
    """Raise `HttpRefusal`, which ends the connection, if the request could be read in two ways (RFC 9112, 6.3)."""
    names = {name for name, _ in scope["headers"]}
    close = [(b"connection", b"close")]
    if scope["http_version"] not in ("1.0", "1.1"):
        raise HttpRefusal(400, "not a request of HTTP/1.1", hint="Use HTTP/1.1", headers=close)
    if b"content-length" in names and b"transfer-encoding" in names:
        raise HttpRefusal(
            400,
            "there is a Content-Length, too",
            where="Transfer-Encoding",
            hint="Send one of them",
            headers=close,
        )


def _check_coding(scope: Scope) -> None:
    """Raise `HttpRefusal` if the content has a content coding: stored undecoded, it would be a wrong file."""
    if scope["method"] not in WITH_CONTENT:
        return
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise HttpRefusal(
                415,
                f"{value[:80].decode('latin-1')!r} is not decoded here",
                where="Content-Encoding",
                hint="Send the content as it is, without this header",
                headers=[(b"accept-encoding", b"identity")],
            )
