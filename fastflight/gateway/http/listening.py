"""Runs uvicorn on an event loop of its own: `listen` starts it, `Gateway.close` ends it in bounded time.

`listen` binds the port itself, so that it raises if the port is taken. uvicorn handles no signals here and logs
nothing: clients get the errors, and the gateway logs unexpected ones under the request id that the client gets.
"""

from __future__ import annotations

import concurrent.futures
import os
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from fastflight.concurrency import Shard
from fastflight.errors import TransportError
from fastflight.gateway.asgi import Application
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.http.uvicorn_overrides import BACKLOG, STOP_SECONDS, Server

log = structlog.get_logger(__name__)

DEFAULT_HOST = "127.0.0.1"
# How long open answers have to end by themselves.
CLOSE_SECONDS = 5.0


class Gateway:
    """A gateway that serves at `url` until it is closed. Also a context manager."""

    def __init__(self, server: Server, shard: Shard, listener: socket.socket) -> None:
        self._server = server
        self._shard = shard
        host, self.port = listener.getsockname()[:2]
        scheme = "http" if server.tls is None else "https"
        self.url = f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        self._serving = shard.submit(server.serve(sockets=[listener]))

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Accept no more requests, give open answers `timeout` seconds to end, end the rest, and close the shard.

        If a part fails to close, or not in time, this is logged, and the other parts are closed all the same.
        """
        if not self._shard.running:
            return
        submit = self._shard.submit
        if not self._serving.done():
            end = getattr(self._server.config.app, "end", None)
            if end is not None:
                _wait("websockets", lambda: submit(end(timeout)), timeout + STOP_SECONDS)
            self._server.stop(timeout)
        _wait("server", lambda: self._serving, timeout + STOP_SECONDS)
        _wait("connections", lambda: submit(self._server.end_connections()), 2 * STOP_SECONDS)
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
    return Gateway(Server(app, limits, tls), shard, _listener(host, port))


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
