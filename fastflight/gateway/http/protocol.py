"""uvicorn's side of an HTTP connection, with the limits that it lacks and a short way to answer.

What came is bounded by size and by time, also what is sent ahead of its answers; who leaves is noticed by whoever
answers; a refusal stands where an answer may, or the connection ends without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fastflight.gateway.asgi import CALLER, CERTIFICATE
from fastflight.gateway.errors import HttpRefusal, closing_answer
from fastflight.gateway.http.connections import (
    CONTENT_STALL_SECONDS,
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
    Connections,
    Waiting,
    origin_of,
)
from fastflight.gateway.http.head import MAX_HEAD_BYTES, Head
from fastflight.gateway.http.websocket import WebSocket
from fastflight.gateway.relay.relay import PATH, Relay
from fastflight.transport.tcp_info import send_state

OK = b"HTTP/1.1 200 OK\r\n"
AGAIN = "Ask again"
# What a client may send ahead of its answers: requests, and bytes of their heads and content. Browsers send none.
MAX_AHEAD, MAX_AHEAD_BYTES = 64, 64 * 1024
# What a client that is answered while it still sends gets to read that. To close at once destroys it, as TCP has it.
LEAVE_SECONDS = 5.0


class HttpConnection(HttpToolsProtocol):
    """uvicorn's, with limits that it lacks (a head's size and time, a content that stalls), and a short way to answer.

    What `Front.ready` has is written at once: no task, no events, no timers, no scope. That is most of what such an
    answer costs. Whatever is unusual about a request goes uvicorn's way.

    A client may send some requests ahead of their answers. While one is answered, nothing is written that is not its
    answer, and it is told when the connection ends.
    """

    def __init__(self, *args: Any, came: Connections, relay: Relay | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._came = came
        self._relay = relay
        self._head_bytes = 0
        self._head = Head()
        # Content of the request at hand is to come.
        self._in_content = False
        # The request at hand has its answer.
        self._answered = False
        # The one that is answered by a task, or was the last to be; the one at hand (`cycle`) may be behind it.
        self._answering: RequestResponseCycle | None = None
        # It has its last answer: what it still sends is not looked at.
        self._leaving = False
        self.due: float | None = None
        self.resting = False
        self.proven = False
        self.origin = ""
        self._certificate = ""
        # uvicorn's own headers, which it makes anew once a second, and what they are as bytes.
        self._own: list[tuple[bytes, bytes]] | None = None
        self._own_bytes = b""
        self._ready: Callable[[bytes, list[tuple[bytes, bytes]], str], tuple[bytes, bool] | None] = getattr(
            self.app, "ready", _never
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._certificate = certificate_name(transport.get_extra_info("ssl_object"))
        self.app_state = {**self.app_state, CERTIFICATE: self._certificate}
        self.due = self.loop.time() + HEAD_SECONDS
        self.origin = origin_of((transport.get_extra_info("peername") or ("",))[0])
        if not self._came.came(self):
            self._refuse(HttpRefusal(503, "too many connections", hint="Close some, or ask again in a while"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._came.gone(self)
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True  # uvicorn tells the request at hand alone
            self._answering.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in (self._answering, self.cycle):
            if cycle is not None:
                cycle.transport = self.transport  # whose way leads back here: Python would have to look for the circle

    def postponed(self) -> bool:
        if self.flow.read_paused:
            self.due = self._came.now + CONTENT_STALL_SECONDS
            return True
        return False

    def waiting(self) -> Waiting | None:
        size = self.transport.get_write_buffer_size()
        return (size, send_state(self.transport.get_extra_info("socket"))) if size else None

    def cut(self, late: bool) -> None:
        if late and self._in_content:
            self._refuse(
                HttpRefusal(408, f"nothing came for {CONTENT_STALL_SECONDS:.0f} s", where="content", hint=AGAIN)
            )
        elif late and self._head_bytes:
            self._refuse(HttpRefusal(408, f"not whole within {HEAD_SECONDS:.0f} s", where="head", hint=AGAIN))
        else:
            self.transport.abort()

    def handle_websocket_upgrade(self) -> None:
        """WebSockets of the relay leave the server here."""
        if self._answering is not None and not self._answering.response_complete:
            self.transport.abort()
            return
        if self._relay is None or self.url.partition(b"?")[0] != PATH:
            self.due = None
            # It takes no line of more than 8 KiB, and other servers on this computer may have many cookies.
            self.scope["headers"] = [header for header in self.headers if header[0] != b"cookie"]
            super().handle_websocket_upgrade()
            upgraded = self.transport.get_protocol()
            assert isinstance(upgraded, WebSocket)
            upgraded.gone = partial(self._came.gone, self)
            return
        self._came.gone(self)
        self.connections.discard(self)
        self._relay.take_over(self.transport, self.headers, self.url.partition(b"?")[2], self._certificate)

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(HttpRefusal(431, f"more than {MAX_HEAD_BYTES} bytes", where="head", hint="Send less"))
        elif self.pipeline:
            if len(self.pipeline) > MAX_AHEAD or self._ahead_bytes() > MAX_AHEAD_BYTES:
                self.transport.abort()
            else:
                self.flow.resume_reading()  # that its client leaves is seen by nothing else

    def send_400_response(self, msg: str) -> None:
        hint = "What follows on this connection is not read"
        self._refuse(self._head.refusal or HttpRefusal(400, "not a request of HTTP/1.1", hint=hint))

    def on_message_begin(self) -> None:
        """The scope is made once it is known that the application has to be asked."""
        self.url = b""
        self.headers = []
        self._head = Head()
        self.expect_100_continue = False
        self.resting = False
        self.due = self._came.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        self._head.target(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Not what follows content (RFC 9110, 6.5.1): whoever has the head has judged it already."""
        if not self._in_content:
            self._head.header(name.lower(), value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._came.asked(self)
        self._head.check(self.parser.get_http_version())
        self.url, self.headers = self._head.in_origin_form(self.url, self.headers)
        self._head_bytes = 0  # what comes now is content, or what is around its chunks: that counts
        self._in_content = True
        self.due = self._came.now + CONTENT_STALL_SECONDS
        parser = self.parser
        if (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and (ready := self._ready(self.url, self.headers, self._certificate)) is not None
        ):
            data, proven = ready
            self.proven = self.proven or proven
            self._answered = True
            own = self.server_state.default_headers
            if own is not self._own:
                self._own, self._own_bytes = own, b"".join(b"%b: %b\r\n" % header for header in own)
            self.transport.write(b"".join((OK, self._own_bytes, data)))
        else:
            url, headers, expects = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.headers, self.expect_100_continue = url, headers, expects
            self.scope["headers"] = headers
            before = self.cycle
            super().on_headers_complete()
            if self.cycle is not before:  # it is not for a WebSocket
                self.cycle.__class__ = _Cycle  # uvicorn has no other place for one
                self.cycle.transport = _Way(self.transport, self._end)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self.due = self._came.now + CONTENT_STALL_SECONDS
        if not self._answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._in_content = False
        self.due = None
        if self._answered:
            self._answered = False
            self.on_response_complete()
        else:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """As uvicorn's, whose timer for each answer is a `due` here."""
        self.server_state.total_requests += 1
        caller: Any = None if self._answering is None else self._answering.scope.get(CALLER)
        self.proven = self.proven or (caller is not None and caller.proven)
        if self._leaving or self.transport.is_closing():
            return
        if self._in_content and not self.pipeline:
            self._end()  # the answer is there, so what is still to come is not wanted
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.due is None:  # else the next head has begun to come
            self.due = self._came.now + KEEP_ALIVE_SECONDS
            self.resting = True

    @property
    def _is_next(self) -> bool:
        """Whether what is written now is taken for the answer to the request at hand."""
        answering = self._answering
        if answering is None or answering.response_complete:
            return not self._answered
        return self._in_content and answering is self.cycle and not answering.response_started

    def _ahead_bytes(self) -> int:
        """Of the requests that wait for their turn."""
        heads = (len(name) + len(value) for cycle, _ in self.pipeline for name, value in cycle.scope["headers"])
        urls = (len(cycle.scope["raw_path"]) + len(cycle.scope["query_string"]) for cycle, _ in self.pipeline)
        return sum(heads) + sum(urls) + sum(len(cycle.body) for cycle, _ in self.pipeline)

    def _refuse(self, error: HttpRefusal) -> None:
        """End the connection, with an answer that is not the application's if one may stand there."""
        self.due = None
        if self._is_next:
            self.transport.write(closing_answer(error, {}))
            self.transport.close()
        else:
            self.transport.abort()

    def _end(self) -> None:
        """Nothing more is written. One that still sends its content is left when it has read that."""
        if self._leaving or not self._in_content:
            self.transport.close()
            return
        self._leaving = self.resting = True
        self._in_content, self._head_bytes = False, 0
        self.due = self.loop.time() + LEAVE_SECONDS
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


class _Cycle(RequestResponseCycle):
    """One request and its answer, which says so where it is the last: what is still to come is not looked at."""

    def send(self, message: Any) -> Any:
        if self.more_body and not self.response_started:
            self.keep_alive = False
        return super().send(message)


class _Way:
    """To the client, for one answer: closing it is the protocol's."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


def certificate_name(tls: ssl.SSLObject | None) -> str:
    """What a client's certificate, which TLS has proven, calls it: its first alternative name, else its common name.

    As gRPC tells it to the Flight edge. Empty for a first alternative name of a kind that it does not tell.
    """
    proven: Any = (tls.getpeercert() if tls is not None else None) or {}
    for kind, value in proven.get("subjectAltName", ()):
        if kind == "IP Address":
            with contextlib.suppress(ValueError):
                return str(ipaddress.ip_address(value))
        return str(value) if kind in ("DNS", "email", "URI") else ""
    common = [value for part in proven.get("subject", ()) for key, value in part if key == "commonName"]
    return str((common or [""])[0])


def _never(url: bytes, headers: list[tuple[bytes, bytes]], certificate: str) -> tuple[bytes, bool] | None:
    """For applications that are not the gateway's."""
    return None
