"""The application's door: who may ask, and answers that are kept for a moment.

A server on loopback is reachable by every page that the user's browser shows. So a request must name this computer as
its host (a page that rebinds its own name to 127.0.0.1 does not), and one that a page sends must be from a page of the
gateway itself or of an allowed origin: a browser always says, in `Origin` or in `Sec-Fetch-Site`.

Where the backend wants a proof of who asks, a request without one is refused here, before anything of its content is
read and whatever it asks for; but for `/health`, and what the page is made of.

Small answers that many ask for are plain ASGI: kept as bytes for `LIFETIME_SECONDS` for who asked, made again by one
request at a time, with an ETag. Everything else goes on to the application behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError, ResourceExhausted, Unauthenticated
from fastflight.gateway import cors
from fastflight.gateway.callers import ANYONE, Caller, Callers
from fastflight.gateway.connections import Connections
from fastflight.gateway.headers import begin
from fastflight.gateway.status import EVERYWHERE, RETRY_SECONDS, Refused, told
from fastflight.service import trace

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# How old a kept answer may be. A page that asks ten times a second sees every change.
LIFETIME_SECONDS = 0.1
# Callers for whom one small answer is kept; of more, the oldest goes.
MAX_KEPT_FOR = 256
# Those that are counted by their names.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))
# Where a scope has its `Caller`, and what TLS has proven of the client.
CALLER, CERTIFICATE = "fastflight.caller", "certificate"


@dataclass(frozen=True, slots=True)
class Made:
    """The content of a small answer."""

    body: bytes
    media_type: bytes = b"application/json"


# Makes a small answer anew, for who asks.
Make = Callable[[Caller], Awaitable[Made]]


class Small:
    """One small answer, kept for each caller: what one may see is never another's answer."""

    def __init__(self, make: Make, more: Iterable[Header] = ()) -> None:
        """`more`: headers beside its own."""
        self._make = make
        self._more = tuple(more)
        self._anyone = self._new(ANYONE)
        self._others: dict[Caller, Kept] = {}

    def of(self, caller: Caller) -> Kept:
        """That of `caller`."""
        if caller is ANYONE:
            return self._anyone
        kept = self._others.get(caller)
        if kept is None:
            if len(self._others) >= MAX_KEPT_FOR:
                del self._others[next(iter(self._others))]
            kept = self._others[caller] = self._new(caller)
        return kept

    def _new(self, caller: Caller) -> Kept:
        return Kept(lambda: self._make(caller), more=self._more)


class Kept:
    """One small answer, as encoded messages."""

    def __init__(
        self,
        make: Callable[[], Awaitable[Made]],
        clock: Callable[[], float] = time.monotonic,
        more: tuple[Header, ...] = (),
    ) -> None:
        self._make = make
        self._more = more
        self._clock = clock
        self._fresh_until = 0.0
        self._making: asyncio.Task[None] | None = None
        self._etag = b""
        self._start: dict[str, Any] = {}
        self._body: dict[str, Any] = {}
        self._unchanged: dict[str, Any] = {}
        self._whole = b""

    async def answer(self, scope: Scope, send: Send) -> None:
        """Send it, or 304 to a client that has it. Raises what making it raises."""
        if self._clock() >= self._fresh_until:
            await self._renewed()
        for name, value in scope["headers"]:
            if name == b"if-none-match" and self._etag in value:
                await send(self._unchanged)
                await send(EMPTY)
                return
        await send(self._start)
        await send(EMPTY if scope["method"] == "HEAD" else self._body)

    def ready(self, headers: Iterable[Header]) -> bytes | None:
        """Head, but for its first line, and body, where they are fresh and a client wants them whole."""
        if self._clock() >= self._fresh_until:
            return None
        for name, _ in headers:
            if name in SPECIAL:
                return None
        return b"x-request-id: %b\r\n%b" % (trace.unread(), self._whole)

    async def _renewed(self) -> None:
        """Whoever comes while it is made waits for the same making; a client that leaves does not end it."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._renew())
            self._making.add_done_callback(self._made)
        await asyncio.shield(self._making)

    def _made(self, making: asyncio.Task[None]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # told to those that wait, if any still do

    async def _renew(self) -> None:
        made = await self._make()
        self._etag = b'"%s"' % hashlib.sha256(made.body).hexdigest()[:20].encode()
        kept: list[Header] = [(b"etag", self._etag), (b"cache-control", b"private, no-cache"), *self._more]
        described = [(b"content-type", made.media_type), (b"content-length", b"%d" % len(made.body)), *kept]
        self._start = {"type": "http.response.start", "status": 200, "headers": described}
        self._body = {"type": "http.response.body", "body": made.body}
        self._unchanged = {"type": "http.response.start", "status": 304, "headers": kept}
        self._whole = b"".join(b"%b: %b\r\n" % header for header in described) + b"\r\n" + made.body
        self._fresh_until = self._clock() + LIFETIME_SECONDS


# What has an answer of its own: one that says nothing has changed, or has the id that was given.
SPECIAL = frozenset((b"if-none-match", b"x-request-id", b"traceparent"))
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}


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
        """`Refused` for a request that a stranger's page may have sent."""
        host = origin = site = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if not self._is_here(host):
            raise Refused(421, "not a name of this computer", where="Host", hint=self._known_hosts())
        if origin and origin != self._scheme + host and origin not in self._origins:
            raise Refused(403, "pages from elsewhere may not ask", where="Origin", hint="Allow the origin when serving")
        if not origin and site == b"cross-site":
            raise Refused(
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


# One per spelling of the address, of which there are few.
MAX_KNOWN_HOSTS = 64


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


class Telling:
    """Around an application: what it raises becomes an answer. Once one has begun, it is broken off instead."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if not started:
                await send_error(send, error)
            else:
                await told_off_loop(error)


class Sockets(Protocol):
    """The application behind WebSockets, whose Host and Origin have been checked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def admit(self, query: bytes, use: str, shown: Caller | None) -> Caller: ...

    async def end(self, timeout: float) -> None: ...


class Front:
    """The ASGI application in front of `behind`. `small`: path to how its answer is made."""

    def __init__(
        self,
        door: Door,
        small: Mapping[str, Make],
        behind: Application,
        sockets: Sockets | None = None,
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
        more = [cors.VARY] if self._shares else []
        self._small = {path: Small(make, more) for path, make in small.items()}
        self._small_urls = {path.encode(): (each, path in self._public) for path, each in self._small.items()}
        self._behind = behind
        # Of connections, which whoever serves this looks after; and of answers, by method and status.
        self.connections = Connections()
        self.answers: Counter[tuple[str, int]] = Counter()

    def ready(self, url: bytes, headers: Iterable[Header], certificate: str = "") -> bytes | None:
        """What can be answered to a GET without a task; None where the application has to be asked."""
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
            except Refused:
                return None
            if self._shares and self._door.other(headers) is not None:
                return None
            self.answers["GET", 200] += 1
        return whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = begin(scope, send)
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        send = self._counting(scope["method"], send)
        try:
            self._door.check(scope["headers"])
        except Refused as error:
            await send_error(send, error)
            return
        if self._door.has_others:
            origin = self._door.other(scope["headers"])
            if origin is not None and cors.is_preflight(scope["method"], scope["headers"]):
                heads = [*cors.preflight(origin), cors.VARY]
                await send({"type": "http.response.start", "status": 204, "headers": heads})
                await send(EMPTY)
                return
            send = _sharing(send, origin)
        try:
            scope[CALLER] = caller = await self._caller(scope)
            small = self._small.get(scope["path"])
            if small is not None:
                if scope["method"] not in ("GET", "HEAD"):
                    raise Refused(405, "this can only be read", where=scope["path"], hint="Ask with GET")
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
                raise Refused(404, "no WebSocket there", where=scope["path"])
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


def _sharing(send: Send, origin: bytes | None) -> Send:
    """`send`, with what tells a browser that pages of `origin` may read the answer; None: no other origin's."""
    more = [cors.VARY, *(cors.shared(origin) if origin is not None else [])]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [each for each in message["headers"] if each != cors.VARY]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return sending


async def told_off_loop(error: BaseException) -> tuple[int, bytes]:
    """As `told`. To log a traceback for people takes seconds where there is much in it."""
    return told(error) if isinstance(error, FastFlightError) else await off_loop(told, error)


async def send_error(send: Send, error: BaseException, kind: str = "http") -> None:
    """Answer with what the client is to know of `error`. `kind` is `websocket.http` for an upgrade."""
    status, body = await told_off_loop(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        # Not Basic, which is taken as well: browsers would ask by a window of their own. What else the client sends on
        # this connection is not read.
        headers += [(b"www-authenticate", b'Bearer realm="fastflight"'), (b"connection", b"close")]
    if status == 503:
        seconds = error.retry_after_seconds if isinstance(error, ResourceExhausted) else RETRY_SECONDS
        headers.append((b"retry-after", b"%d" % math.ceil(seconds)))
    if kind != "http":  # to others the server adds these
        headers += EVERYWHERE
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
