"""What a client is told of an error, as an answer."""

from __future__ import annotations

import math

from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError, ResourceExhausted
from fastflight.gateway.asgi import Application, Message, Receive, Scope, Send
from fastflight.gateway.status import EVERYWHERE, RETRY_SECONDS, HttpRefusal, told


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


async def told_off_loop(error: BaseException) -> tuple[int, bytes]:
    """As `told`. To log a traceback for people takes seconds where there is much in it."""
    return told(error) if isinstance(error, FastFlightError) else await off_loop(told, error)


async def send_error(send: Send, error: BaseException, kind: str = "http") -> None:
    """Answer with what the client is to know of `error`. `kind` is `websocket.http` for an upgrade."""
    status, body = await told_off_loop(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if isinstance(error, HttpRefusal):
        headers += error.headers
    if status == 401:
        # Not Basic, which is taken as well: browsers would ask by a window of their own. What else the client sends on
        # this connection is not looked at.
        headers += [(b"www-authenticate", b'Bearer realm="fastflight"'), (b"connection", b"close")]
    if status == 503:
        seconds = error.retry_after_seconds if isinstance(error, ResourceExhausted) else RETRY_SECONDS
        headers.append((b"retry-after", b"%d" % math.ceil(seconds)))
    if kind != "http":  # to others the server adds these
        headers += EVERYWHERE
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
