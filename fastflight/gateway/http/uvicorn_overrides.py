"""All that the gateway overrides of uvicorn, each with its reason; nothing else in the gateway touches its insides.

`Server` serves an ASGI application with `HttpProtocol` and `WebSocketProtocol`, which limit clients in size and time
where uvicorn does not. The methods and attributes that they override or use are those of uvicorn 0.54, so
pyproject.toml pins that version. Before you raise it, compare this file with `uvicorn.server`,
`uvicorn.protocols.http.httptools_impl` and `uvicorn.protocols.websockets.websockets_sansio_impl`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fastflight.gateway.asgi import CALLER, CERTIFICATE, Application, Header
from fastflight.gateway.auth import certificate_name
from fastflight.gateway.errors import EVERYWHERE, HttpRefusal, closing_answer
from fastflight.gateway.http.connections import (
    CONTENT_STALL_SECONDS,
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
    Connections,
    Waiting,
    origin_of,
)
from fastflight.gateway.http.head import MAX_HEAD_BYTES, Head
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES
from fastflight.transport.tcp_info import send_state

AGAIN = "Ask again"
# Returns the headers and body of the answer to a GET with this URL and these headers, if it is ready; else None.
Ready = Callable[[bytes, list[Header]], bytes | None]
# Pipelining: requests that wait for previous answers, and the bytes of their heads and content. Browsers send none.
MAX_AHEAD, MAX_AHEAD_BYTES = 64, 64 * 1024
# How long a client that is answered while it still sends has to read the answer. If the connection were closed at once,
# TCP would destroy the answer.
LEAVE_SECONDS = 5.0
# How long a client has to read the last messages of a WebSocket.
LINGER_SECONDS = 5.0
# How often the client of a WebSocket gets a ping, and how long it has to answer. A client that stalls for a moment must
# first read what was sent before the ping.
PING_SECONDS = 15.0
PONG_SECONDS = 45.0
# How long a TLS handshake may take, from connecting; enough for a slow phone.
HANDSHAKE_SECONDS = 10.0
# Connections that wait in the operating system while the loop is busy.
BACKLOG = 1024
# How long the sources of cancelled requests may clean up.
STOP_SECONDS = 5.0


class HttpProtocol(HttpToolsProtocol):
    """One connection. Limits the size and time of heads, the time of content, and pipelining, which uvicorn does not.

    A client may send some requests before it has its previous answers. While a task answers one of them, nothing else
    is written, and the task learns when the connection ends. A request that breaks a limit gets an error if its answer
    is next on the connection; otherwise the connection is closed without one.
    """

    def __init__(self, *args: Any, limits: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._head = Head()
        # The content of the current request has not come to its end.
        self._in_content = False
        # The request that a task answers, or was the last to answer. The current one (`cycle`) may wait behind it.
        self._answering: RequestResponseCycle | None = None
        self._ready: Ready = getattr(self.app, "ready", lambda url, headers: None)
        # The current request, which has no content, was answered at once.
        self._answered = False
        # The last answer is sent; what the client still sends is ignored.
        self._leaving = False
        self.due: float | None = None
        self.resting = False
        self.proven = False
        self.origin = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, start its deadline, and pass the client's certificate on in the scope's `state`."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFICATE: certificate_name(transport.get_extra_info("ssl_object"))}
        self.due = self.loop.time() + HEAD_SECONDS
        self.origin = origin_of((transport.get_extra_info("peername") or ("",))[0])
        if not self._limits.admit(self):
            self._refuse(HttpRefusal(503, "too many connections", hint="Close some, or try again later"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the task that answers. uvicorn tells only the current request, which may wait behind that one."""
        self._limits.remove(self)
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
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
        """Keep this connection's limits for the WebSocket."""
        if self._answering is not None and not self._answering.response_complete:
            self.transport.abort()
            return
        self.due = None
        # The WebSocket library takes no line over 8 KiB. Other servers on this computer may have set many cookies.
        self.scope["headers"] = [header for header in self.headers if header[0] != b"cookie"]
        super().handle_websocket_upgrade()
        upgraded = self.transport.get_protocol()
        assert isinstance(upgraded, WebSocketProtocol)
        upgraded.on_closed = partial(self._limits.remove, self)

    def data_received(self, data: bytes) -> None:
        """Limit the bytes of heads that are not complete, and of requests that wait for previous answers."""
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
        """Refuse with the gateway's own error instead of text. The parser hides the reason that `Head` had."""
        hint = "What follows on this connection is not read"
        self._refuse(self._head.refusal or HttpRefusal(400, "not a request of HTTP/1.1", hint=hint))

    def on_message_begin(self) -> None:
        """Start the deadline of the head."""
        super().on_message_begin()
        self._head = Head()
        self.resting = False
        self.due = self._limits.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Check the target's size while it comes."""
        self._head.target(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Check and store a header. Trailers (RFC 9110, 6.5.1) are ignored: the head was judged already."""
        if not self._in_content:
            self._head.header(name.lower(), value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the head, then let uvicorn start the task for the request.

        Its cycle is a `_Cycle`, which does not close the connection: that is left to this protocol.
        """
        self._limits.note_request(self)
        self._head.check(self.parser.get_http_version())
        self.url, self.headers = self._head.in_origin_form(self.url, self.headers)
        self.scope["headers"] = self.headers
        self._head_bytes = 0  # from here on it counts the bytes around the chunks of the content
        self._in_content = True
        self.due = self._limits.now + CONTENT_STALL_SECONDS
        if self._answer_at_once():
            return
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # not an upgrade to a WebSocket
            self.cycle.__class__ = _Cycle  # uvicorn has no other way to replace the class
            self.cycle.transport = _AnswerTransport(self.transport, self._end)  # type: ignore[assignment]

    def _answer_at_once(self) -> bool:
        """Write the answer to a plain GET if the application has it `ready`; return whether it was written.

        uvicorn's task, events and scope would be three quarters of its cost (decision 0019).
        """
        is_plain = (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        )
        answer = self._ready(self.url, self.headers) if is_plain else None
        if answer is None:
            return False
        self._answered = True
        default_headers = (b"%b: %b\r\n" % header for header in self.server_state.default_headers)
        self.transport.write(b"".join((b"HTTP/1.1 200 OK\r\n", *default_headers, answer)))
        return True

    def on_body(self, body: bytes) -> None:
        """Start the deadline of the content anew."""
        self._head_bytes = 0
        self.due = self._limits.now + CONTENT_STALL_SECONDS
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the deadline: the client now waits for the gateway."""
        self._head_bytes = 0
        self._in_content = False
        self.due = None
        if self._answered:
            self._answered = False
            self.on_response_complete()
        else:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Note which request is answered: uvicorn knows only the one that came last."""
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Do as uvicorn does, but with `due` instead of a timer for each answer, and end after an early answer."""
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
            self.transport.write(closing_answer(error))
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
    """One request and its answer."""

    def send(self, message: Any) -> Any:
        """Say in an answer that begins before the content has ended that it is the last one on the connection."""
        if self.more_body and not self.response_started:
            self.keep_alive = False
        return super().send(message)


class _AnswerTransport:
    """The transport for one answer: `close` calls the protocol, which may let the client read before it closes."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, from the upgrade on. `on_closed` is called when it has ended.

    Disconnects clients that do not read or that close their side, and bounds the memory that a client's messages take.
    """

    _abort_timer: asyncio.TimerHandle | None = None
    # When the client was last heard, by the loop's clock.
    _heard = 0.0
    # The answer to the newest ping, while the client does not read.
    _pong = b""
    # The fragments of the current message, joined.
    _parts: bytearray | None = None
    on_closed: Callable[[], None] = staticmethod(lambda: None)

    def data_received(self, data: bytes) -> None:
        """Answer handshakes that the WebSocket library cannot read. uvicorn leaves the client without an answer."""
        self._heard = self.loop.time()
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            hint = "At most 128 headers, none over 8 KiB, and no content"
            error = HttpRefusal(400, "not a handshake of a WebSocket", where="head", hint=hint)
            self.transport.write(closing_answer(error))
            self.transport.close()

    def eof_received(self) -> None:
        """Treat a client that has closed its side as gone. uvicorn would first wait until all output is sent."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def handle_ping(self) -> None:
        """Answer pings while the client reads; when it reads again, answer the newest one for all (RFC 6455, 5.5.3)."""
        answers = self.conn.data_to_send()
        if self.writable.is_set() or self.conn.close_sent is not None:
            self.transport.write(b"".join(answers))
        elif answers:
            self._pong = answers[-1]

    def resume_writing(self) -> None:
        """Answer the newest ping that has waited."""
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent:
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        """Join the fragments of a message as they come. uvicorn keeps each, so empty ones would take memory."""
        if self._parts is None:
            self._parts = bytearray(self.frames[0])
        self._parts += event.data
        if event.fin:
            self.frames, self._parts = [bytes(self._parts)], None
            self.send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """Abort. uvicorn would wait until a client that does not answer has read all output.

        A client that still sends, or that the gateway does not read, is given more time: its answer may be behind its
        messages.
        """
        if self.read_paused or self.loop.time() - self._heard < PONG_SECONDS:
            self.pong_timer = self.loop.call_later(PONG_SECONDS, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Abort the connection if the client does not read the rest within `LINGER_SECONDS`."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._abort_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call `on_closed`: the connection no longer counts towards the limit."""
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        super().connection_lost(exc)
        self.on_closed()


class Server(uvicorn.Server):
    """Serves `app` at sockets that are bound already."""

    def __init__(self, app: Application, connections: Connections, tls: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            app,
            http=partial(HttpProtocol, limits=connections),  # type: ignore[arg-type]  # called as the class is
            ws=WebSocketProtocol,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PONG_SECONDS,
            ws_per_message_deflate=False,  # on this computer it costs more than it saves
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            headers=[(name.decode(), value.decode()) for name, value in EVERYWHERE],
            server_header=False,
            proxy_headers=False,  # their headers are not trusted: no proxy is expected in front
        )
        super().__init__(config)
        self.tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn takes TLS only as paths of files, and does not limit the time of a handshake."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make = partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        limit = None if self.tls is None else HANDSHAKE_SECONDS
        self.servers = [
            await loop.create_server(make, sock=each, backlog=BACKLOG, ssl=self.tls, ssl_handshake_timeout=limit)
            for each in sockets or ()
        ]
        self.started = True

    def stop(self, timeout: float) -> None:
        """Accept no more connections; `serve` returns when the open answers have ended, or after `timeout` seconds."""
        self.config.timeout_graceful_shutdown = timeout  # type: ignore[assignment]  # also parts of seconds
        self.should_exit = True

    async def end_connections(self) -> None:
        """Cancel the remaining requests, and abort connections whose client does not read. uvicorn waits for both."""
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
