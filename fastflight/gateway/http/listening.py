"""Runs uvicorn on an event loop of its own: `listen` starts it, `Gateway.close` ends it in bounded time.

`listen` binds the port itself, so that it raises if the port is taken. uvicorn handles no signals here and logs
nothing: clients get the errors, and the gateway logs unexpected ones under the request id that the client gets.

uvicorn gets its limits as settings, from its parser `h11`: the other one, httptools, takes heads of any size. Its two
protocols are extended at asyncio's own methods alone, to tell `Connections` when a connection begins and ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from fastflight.concurrency import Shard
from fastflight.errors import TransportError
from fastflight.gateway.asgi import Application
from fastflight.gateway.errors import EVERYWHERE
from fastflight.gateway.http.connections import CONNECTION, IDLE_SECONDS, STOP_SECONDS, Connection, Connections
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES

log = structlog.get_logger(__name__)

DEFAULT_HOST = "127.0.0.1"
# How long open answers have to end by themselves.
CLOSE_SECONDS = 5.0
# A request's first line and headers: a long path, cookies of other servers on this computer.
MAX_HEAD_BYTES = 64 * 1024
# How often the client of a WebSocket gets a ping. Its answer is not waited for, as it may be behind messages that the
# gateway does not read yet; if its computer does not acknowledge the ping, `Connections` cuts it.
PING_SECONDS = 15.0
# Connections that wait in the operating system while the loop is busy.
BACKLOG = 1024


class HttpProtocol(H11Protocol):
    """One connection. Its application learns the client's certificate, which uvicorn does not pass on."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counted = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = Connection(transport)
        self.app_state = {**self.app_state, **connection.state}
        super().connection_made(transport)
        self._counted.add(connection)

    def data_received(self, data: bytes) -> None:
        """End the connection if what comes behind an answer is not HTTP: uvicorn would try to refuse it, and fail."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._counted.remove(self.app_state[CONNECTION])
        super().connection_lost(exc)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, from the upgrade on."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counted = connections

    def connection_lost(self, exc: Exception | None) -> None:
        self._counted.remove(self.app_state[CONNECTION])
        super().connection_lost(exc)


def _configured(app: Application, connections: Connections, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        connections.counting(app),
        http=partial(HttpProtocol, connections=connections),  # type: ignore[arg-type]  # called as the class is
        ws=partial(WebSocketProtocol, connections=connections),  # type: ignore[arg-type]
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=int(IDLE_SECONDS),
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,  # on this computer it costs more than it saves
        backlog=BACKLOG,
        ssl_context_factory=None if tls is None else lambda config, default: tls,
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        headers=[(name.decode(), value.decode()) for name, value in EVERYWHERE],
        server_header=False,
        proxy_headers=False,  # their headers are not trusted
    )


class Gateway:
    """A gateway that serves at `url` until it is closed. Also a context manager."""

    def __init__(
        self, app: Application, connections: Connections, tls: ssl.SSLContext | None, shard: Shard, port: socket.socket
    ) -> None:
        self._app = app
        self._connections = connections
        self._server = uvicorn.Server(_configured(app, connections, tls))
        self._shard = shard
        host, self.port = port.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        self._serving = shard.submit(self._server.serve(sockets=[port]))

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Accept no more requests, give open answers `timeout` seconds to end, end the rest, and close the shard.

        If a part fails to close, or not in time, this is logged, and the other parts are closed all the same.
        """
        if not self._shard.running:
            return
        submit = self._shard.submit
        if not self._serving.done():
            end = getattr(self._app, "end", None)
            if end is not None:
                _wait("websockets", lambda: submit(end(timeout)), timeout + STOP_SECONDS)
            self._server.config.timeout_graceful_shutdown = timeout  # type: ignore[assignment]  # also parts of seconds
            self._server.should_exit = True
        _wait("server", lambda: self._serving, timeout + STOP_SECONDS)
        _wait("connections", lambda: submit(self._connections.end()), 2 * STOP_SECONDS)
        self._shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _wait(part: str, begin: Callable[[], concurrent.futures.Future[None]], seconds: float) -> None:
    """Close a part of the gateway with `begin`, and wait. A failure is only logged: the other parts must close too."""
    try:
        begin().result(seconds)
    except TimeoutError:
        log.warning("a part of the gateway did not close in time", part=part, seconds=seconds)
    except Exception:
        log.exception("a part of the gateway failed to close", part=part)


def listen(
    app: Application,
    shard: Shard,
    port: int,
    host: str = DEFAULT_HOST,
    connections: Connections | None = None,
    tls: ssl.SSLContext | None = None,
) -> Gateway:
    """Serve `app` on `shard`, and return the running gateway. Raises `TransportError` if the port cannot be bound.

    The shard must be running; the gateway closes it. Port 0 picks a free port. `connections` limits and counts
    connections; None: those of `app`, if it has any. With `tls` it is HTTPS.
    """
    limits = connections or getattr(app, "connections", None) or Connections()
    return Gateway(app, limits, tls, shard, _listener(host, port))


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY only if the protocol is named. It is needed: a head and a small body are two writes.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":  # on Windows, two servers could then share one port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener
    except OSError as error:
        raise TransportError(
            "cannot listen there",
            where=f"http://{host}:{port}",
            hint="Another server may have the port: stop it, or choose another one with --http",
        ) from error
