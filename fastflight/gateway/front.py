"""The application's front: who asks is found out, small answers are given, everything else goes on behind.

Each request passes the door (`gateway.door`). Where the backend wants a proof of who asks, a request without one is
refused here, before anything of its content is read and whatever it asks for; but for `/health`, and what the page is
made of. Small answers (`gateway.small`) are plain ASGI.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from fastflight.errors import Unauthenticated
from fastflight.gateway.asgi import (
    CALLER,
    CERTIFICATE,
    EMPTY,
    Application,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    begin,
)
from fastflight.gateway.callers import ANYONE, Caller, Callers
from fastflight.gateway.door import VARY, Door, cors_headers, is_preflight, preflight_headers
from fastflight.gateway.errors import HttpRefusal, send_error
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.small import Make, Small

# Methods whose content means something.
WITH_CONTENT = frozenset(("POST", "PUT", "PATCH", "DELETE"))
# Those that are counted by their names.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))


class SocketApplication(Protocol):
    """The application behind WebSockets, whose Host and Origin have been checked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def admit(self, query: bytes, use: str, shown: Caller | None) -> Caller: ...

    async def end(self, timeout: float) -> None: ...


class FrontApplication:
    """The ASGI application in front of `behind`. `small`: path to how its answer is made."""

    def __init__(
        self,
        door: Door,
        small: Mapping[str, Make],
        behind: Application,
        sockets: SocketApplication | None = None,
        callers: Callers | None = None,
        public: Collection[str] = (),
    ) -> None:
        """`sockets` are asked for WebSockets; without them there are none.

        `callers` say who asks; without them, anyone. The paths that are `public` want no proof.
        """
        self._door = door
        self._sockets = sockets
        self._callers = callers
        self._public = frozenset(public)
        self._shares = door.has_others
        more = [VARY] if self._shares else []
        self._small = {path: Small(make, more) for path, make in small.items()}
        self._small_urls = {path.encode(): (each, path in self._public) for path, each in self._small.items()}
        self._behind = behind
        # Of connections, which whoever serves this looks after; and of answers, by method and status.
        self.connections = Connections()
        self.answers: Counter[tuple[str, int]] = Counter()

    def ready(self, url: bytes, headers: Iterable[Header], certificate: str = "") -> tuple[bytes, bool] | None:
        """What can be answered to a GET without a task, and whether its caller has proven who they are.

        None where the application has to be asked.
        """
        small, public = self._small_urls.get(url, (None, False))
        if small is None:
            return None
        if self._callers is None:
            caller: Caller | None = ANYONE
        else:
            caller = self._callers.stranger if public else self._callers.ready(headers, certificate)
        whole = None if caller is None else small.of(caller).ready(headers)
        if whole is not None:
            try:
                self._door.check(headers)
            except HttpRefusal:
                return None
            if self._shares and self._door.other(headers) is not None:
                return None
            self.answers["GET", 200] += 1
        return None if whole is None or caller is None else (whole, caller.proven)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = begin(scope, send)
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        send = self._counting(scope["method"], send)
        try:
            self._door.check(scope["headers"])
        except HttpRefusal as error:
            await send_error(send, error)
            return
        if self._door.has_others:
            origin = self._door.other(scope["headers"])
            if origin is not None and is_preflight(scope["method"], scope["headers"]):
                heads = [*preflight_headers(origin), VARY]
                await send({"type": "http.response.start", "status": 204, "headers": heads})
                await send(EMPTY)
                return
            send = _sharing(send, origin)
        try:
            scope[CALLER] = caller = await self._caller(scope)
            _check_coding(scope)
            small = self._small.get(scope["path"])
            if small is not None:
                if scope["method"] not in ("GET", "HEAD"):
                    raise HttpRefusal(
                        405,
                        "this can only be read",
                        where=scope["path"],
                        hint="Ask with GET",
                        headers=[(b"allow", b"GET, HEAD")],
                    )
                await small.of(caller).answer(scope, send)
                return
        except Exception as error:
            await send_error(send, error)
            return
        await self._behind(scope, receive, send)

    def _counting(self, method: str, send: Send) -> Send:
        known = method if method in METHODS else "other"

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answers[known, message["status"]] += 1
            await send(message)

        return counting

    async def _caller(self, scope: Scope) -> Caller:
        """Who asks. `Unauthenticated`, unless the path is a public one."""
        if self._callers is None:
            return ANYONE
        if scope["path"] in self._public:
            return self._callers.stranger
        return await self._callers.of(scope["headers"], scope.get("state", {}).get(CERTIFICATE, ""))

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every WebSocket passes here: refused, it is not accepted."""
        try:
            self._door.check(scope["headers"])
            if self._sockets is None:
                raise HttpRefusal(404, "no WebSocket there", where=scope["path"])
            with contextlib.suppress(Unauthenticated):  # then its ticket has to say who asks
                scope[CALLER] = await self._caller(scope)
        except Exception as error:
            await send_error(send, error, "websocket.http")
            return
        await self._sockets(scope, receive, send)

    async def admit_to_relay(self, headers: Iterable[Header], query: bytes, certificate: str) -> Caller:
        """Who opens the relay's WebSocket, which leaves this server: as for any other. Raises what they are refused."""
        if self._callers is None or self._sockets is None:
            return ANYONE
        shown = None
        with contextlib.suppress(Unauthenticated):  # then its ticket has to say who asks
            shown = await self._callers.of(headers, certificate)
        return self._sockets.admit(query, "relay", shown)

    async def end(self, timeout: float) -> None:
        """The gateway is closed: WebSockets have `timeout` seconds to come to their end, and are told of it."""
        if self._sockets is not None:
            await self._sockets.end(timeout)


def _check_coding(scope: Scope) -> None:
    """`HttpRefusal` for content in a coding: stored as it is, it would be another file than the one that was meant."""
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


def _sharing(send: Send, origin: bytes | None) -> Send:
    """`send`, with what tells a browser that pages of `origin` may read the answer; None: no other origin's."""
    more = [VARY, *(cors_headers(origin) if origin is not None else [])]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [each for each in message["headers"] if each != VARY]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return sending
