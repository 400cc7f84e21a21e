"""uvicorn on an event loop of its own: `listen` starts it, `Gateway.close` ends it in bounded time.

The port is had before anything runs, so that a port that somebody has is an error of whoever asked. uvicorn takes no
signals here and logs nothing: what fails is told to the client, what nobody expected is in the log under its number.
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
from typing import Self

import structlog
import uvicorn

from fastflight.concurrency import Shard
from fastflight.errors import TransportError
from fastflight.gateway.asgi import Application
from fastflight.gateway.errors import EVERYWHERE
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.http.protocol import HttpConnection
from fastflight.gateway.http.websocket import WebSocket
from fastflight.gateway.relay.relay import Relay
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES

log = structlog.get_logger(__name__)

DEFAULT_HOST = "127.0.0.1"
# A WebSocket's client is asked so often whether it is there, and has so long to answer: one that stalls for a moment
# has its answer behind what it has not read.
PING_SECONDS = 15.0
PONG_SECONDS = 45.0
# From connecting to the end of a TLS handshake: a slow phone's.
HANDSHAKE_SECONDS = 10.0
# What waits at the operating system while the loop is busy.
BACKLOG = 1024
# What open answers get to end by themselves, and then what their sources get for their clean-up.
CLOSE_SECONDS = 5.0
STOP_SECONDS = 5.0


class Gateway:
    """A gateway that answers at `url` until it is closed. Also a context manager."""

    def __init__(self, server: _Server, shard: Shard, listener: socket.socket, relay: Relay | None = None) -> None:
        self._server = server
        self._relay = relay
        self._shard = shard
        host, self.port = listener.getsockname()[:2]
        scheme = "http" if server.tls is None else "https"
        self.url = f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        self._serving = shard.submit(server.serve(sockets=[listener]))

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Take no more requests, give open answers `timeout` seconds to end, end the rest. The shard is closed.

        A part that fails, or does not end in time, is logged; the others are closed all the same.
        """
        if not self._shard.running:
            return
        submit = self._shard.submit
        if not self._serving.done():
            end = getattr(self._server.config.app, "end", None)
            if end is not None:
                _wait("websockets", lambda: submit(end(timeout)), timeout + STOP_SECONDS)
            self._server.config.timeout_graceful_shutdown = timeout  # type: ignore[assignment]  # also parts of seconds
            self._server.should_exit = True
            relay = self._relay
            if relay is not None:
                _wait("relay", lambda: submit(relay.aclose()), STOP_SECONDS)
        _wait("server", lambda: self._serving, timeout + STOP_SECONDS)
        _wait("connections", lambda: submit(self._cut()), 2 * STOP_SECONDS)
        self._shard.close()

    async def _cut(self) -> None:
        """Connections whose client does not read what it asked for."""
        tasks = list(self._server.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _wait(part: str, begin: Callable[[], concurrent.futures.Future[None]], seconds: float) -> None:
    """Wait until a part of the gateway has closed. What it fails by is logged: the other parts are to close as well."""
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
    relay: Relay | None = None,
    connections: Connections | None = None,
    tls: ssl.SSLContext | None = None,
) -> Gateway:
    """Serve `app` on `shard`, which has been started and is the gateway's from now on. Port 0 takes a free one.

    WebSockets at the path of `relay` are its own. `connections` are limited, and counted.
    With `tls` it is HTTPS.
    """
    came = connections or getattr(app, "connections", None) or Connections()
    config = uvicorn.Config(
        app,
        http=partial(HttpConnection, relay=relay, came=came),  # type: ignore[arg-type]  # called as the class is
        ws=WebSocket,
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
        proxy_headers=False,  # there is none in front of it, and who says so is not believed
        backlog=BACKLOG,
    )
    return Gateway(_Server(config, tls), shard, _listener(host, port), relay)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol is named because asyncio sets TCP_NODELAY only then: a head and a small body are two writes.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have one port
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


class _Server(uvicorn.Server):
    """uvicorn's, with a context for TLS as it is given, and a limit on the time of its handshake."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self.tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
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
