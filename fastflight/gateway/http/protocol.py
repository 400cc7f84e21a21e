"""uvicorn's HTTP protocol, with limits that it lacks.

Limits requests in size and time, including requests that a client sends before it has its previous answers. The task
that answers is told when its client leaves. A request that breaks a limit gets an error if its answer is next on the
connection; otherwise the connection is closed without one.
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

AGAIN = "Ask again"
# Pipelining: requests that wait for previous answers, and the bytes of their heads and content. Browsers send none.
MAX_AHEAD, MAX_AHEAD_BYTES = 64, 64 * 1024
# For a client that is answered while it still sends to read the answer. TCP would destroy it if closed at once.
LEAVE_SECONDS = 5.0


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol, with limits that it lacks: size and time of a head, stalled content.

    A client may send some requests before it has its previous answers. While a task answers one of them, nothing else
    is written, and the task is told when the connection ends.
    """

    def __init__(self, *args: Any, limits: Connections, relay: Relay | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._relay = relay
        self._head_bytes = 0
        self._head = Head()
        # The content of the current request has not come to its end.
        self._in_content = False
        # The request that a task answers, or was the last to answer. The current one (`cycle`) may wait behind it.
        self._answering: RequestResponseCycle | None = None
        # The last answer is sent; what the client still sends is ignored.
        self._leaving = False
        self.due: float | None = None
        self.resting = False
        self.proven = False
        self.origin = ""
        self._certificate = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._certificate = certificate_name(transport.get_extra_info("ssl_object"))
        self.app_state = {**self.app_state, CERTIFICATE: self._certificate}
        self.due = self.loop.time() + HEAD_SECONDS
        self.origin = origin_of((transport.get_extra_info("peername") or ("",))[0])
        if not self._limits.admit(self):
            self._refuse(HttpRefusal(503, "too many connections", hint="Close some, or try again later"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True  # uvicorn tells only the current request
            self._answering.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in (self._answering, self.cycle):
            if cycle is not None:
                cycle.transport = self.transport  # breaks a reference cycle through `_AnswerTransport`

    def postponed(self) -> bool:
        if self.flow.read_paused:
            self.due = self._limits.now + CONTENT_STALL_SECONDS
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
            self._refuse(HttpRefusal(408, f"not complete within {HEAD_SECONDS:.0f} s", where="head", hint=AGAIN))
        else:
            self.transport.abort()

    def handle_websocket_upgrade(self) -> None:
        """Hand a WebSocket of the relay over to it; leave all others to uvicorn."""
        if self._answering is not None and not self._answering.response_complete:
            self.transport.abort()
            return
        if self._relay is None or self.url.partition(b"?")[0] != PATH:
            self.due = None
            # The WebSocket library takes no line over 8 KiB. Other servers on this computer may have set many cookies.
            self.scope["headers"] = [header for header in self.headers if header[0] != b"cookie"]
            super().handle_websocket_upgrade()
            upgraded = self.transport.get_protocol()
            assert isinstance(upgraded, WebSocket)
            upgraded.on_closed = partial(self._limits.remove, self)
            return
        self._limits.remove(self)
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
                self.flow.resume_reading()  # only reading notices that the client leaves

    def send_400_response(self, msg: str) -> None:
        hint = "What follows on this connection is not read"
        self._refuse(self._head.refusal or HttpRefusal(400, "not a request of HTTP/1.1", hint=hint))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = Head()
        self.resting = False
        self.due = self._limits.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        self._head.target(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Check and store a header. Trailers (RFC 9110, 6.5.1) are ignored: the head was judged already."""
        if not self._in_content:
            self._head.header(name.lower(), value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._limits.note_request(self)
        self._head.check(self.parser.get_http_version())
        self.url, self.headers = self._head.in_origin_form(self.url, self.headers)
        self.scope["headers"] = self.headers
        self._head_bytes = 0  # from here on it counts the bytes around the chunks of the content
        self._in_content = True
        self.due = self._limits.now + CONTENT_STALL_SECONDS
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # not an upgrade to a WebSocket
            self.cycle.__class__ = _Cycle  # uvicorn has no other way to replace the class
            self.cycle.transport = _AnswerTransport(self.transport, self._end)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self.due = self._limits.now + CONTENT_STALL_SECONDS
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._in_content = False
        self.due = None
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """As in uvicorn, but with `due` instead of a timer for each answer."""
        self.server_state.total_requests += 1
        caller: Any = None if self._answering is None else self._answering.scope.get(CALLER)
        self.proven = self.proven or (caller is not None and caller.proven)
        if self._leaving or self.transport.is_closing():
            return
        if self._in_content and not self.pipeline:
            self._end()  # the answer is sent, so the rest of the content is not needed
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.due is None:  # otherwise the next head is on its way
            self.due = self._limits.now + KEEP_ALIVE_SECONDS
            self.resting = True

    @property
    def _is_next(self) -> bool:
        """Whether the client takes what is written next for the answer to the current request."""
        answering = self._answering
        if answering is None or answering.response_complete:
            return True
        return self._in_content and answering is self.cycle and not answering.response_started

    def _ahead_bytes(self) -> int:
        """Return the bytes of the requests that wait for their turn."""
        heads = (len(name) + len(value) for cycle, _ in self.pipeline for name, value in cycle.scope["headers"])
        urls = (len(cycle.scope["raw_path"]) + len(cycle.scope["query_string"]) for cycle, _ in self.pipeline)
        return sum(heads) + sum(urls) + sum(len(cycle.body) for cycle, _ in self.pipeline)

    def _refuse(self, error: HttpRefusal) -> None:
        """End the connection, with an error if the answer to the current request is next on it."""
        self.due = None
        if self._is_next:
            self.transport.write(closing_answer(error, {}))
            self.transport.close()
        else:
            self.transport.abort()

    def _end(self) -> None:
        """Close after the last answer; a client that still sends content has `LEAVE_SECONDS` to read the answer."""
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
    """One request and its answer. An answer that begins before the content has ended says that it is the last one."""

    def send(self, message: Any) -> Any:
        if self.more_body and not self.response_started:
            self.keep_alive = False
        return super().send(message)


class _AnswerTransport:
    """The transport for one answer: `close` calls the protocol instead of closing it."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


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
