"""An answer of rows, sent as they come.

Nothing is sent before the source has opened: until then a failure is an answer with its status. After that it must not
look like an end: the chunked encoding is broken off, which every HTTP client reports, after what the format can say.

The loop sends a batch when the client has taken what went before, so a client that does not read stops the source as
soon as the hand-off is full. One that leaves cancels it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pyarrow as pa
from starlette.responses import Response

from fastflight.concurrency import off_loop
from fastflight.errors import Stopped
from fastflight.gateway.asgi import Header, Receive, Scope, Send
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.callers import Caller
from fastflight.gateway.content.formats import BodyEncoder, Data
from fastflight.gateway.errors import error_answer_off_loop
from fastflight.gateway.watching import until
from fastflight.service.requests import Request

# Cells that are encoded as text on the loop; more are encoded away from it, in slices of so many.
CELLS_ON_LOOP = 256
CELLS_PER_SLICE = 32 * 1024


@dataclass(frozen=True, slots=True)
class Begun:
    """The beginning of an answer. Without an `encoder` it has no content, and the rows are none."""

    status: int
    headers: list[Header]
    encoder: BodyEncoder | None


class Streamed(Response):
    """The rows of `request` for `caller`, as the encoder that `make` makes writes them."""

    def __init__(
        self, backend: Backend, request: Request, caller: Caller, make: Callable[[pa.Schema], BodyEncoder]
    ) -> None:
        super().__init__()
        self._backend = backend
        self._request = request
        self._caller = caller
        self._make = make

    async def begin(self, answer: StreamedAnswer) -> Begun | Request | Response:
        """What is sent of `answer`, which has just been opened; or what is to be asked, or sent, instead of it."""
        encoder = self._make(answer.schema)
        headers = [
            (b"content-type", encoder.media_type.encode()),
            (b"cache-control", b"no-store"),
            (b"fastflight-path", path_of(answer)),
        ]
        return Begun(200, headers, encoder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request's content must have been read."""
        following: Begun | Request | Response = self._request
        whole = True
        async with while_connected(receive):
            while isinstance(following, Request):
                async with self._backend.read(following, caller=self._caller) as answer:
                    following = await self.begin(answer)
                    if isinstance(following, Begun):
                        without = scope["method"] == "HEAD"
                        whole = await _send_answer(following, None if without else following.encoder, answer, send)
        # Nobody watches any more: to the watcher, an answer that has ended looks like a client that has left.
        if isinstance(following, Response):
            await following(scope, receive, send)
        elif whole:
            await send({"type": "http.response.body", "body": b""})


def path_of(answer: StreamedAnswer) -> bytes:
    """Which path served it: `sync` or `async`."""
    return bytes((answer.schema.metadata or {}).get(b"fastflight.path", b""))


async def _send_answer(begun: Begun, encoder: BodyEncoder | None, answer: StreamedAnswer, send: Send) -> bool:
    """Whether all of it was sent."""
    await send({"type": "http.response.start", "status": begun.status, "headers": begun.headers})
    try:
        if encoder is not None:
            await _send_rows(encoder, answer, send)
        return True
    except Exception as error:
        assert encoder is not None
        await _send(send, encoder.fail(json.loads((await error_answer_off_loop(error))[1])))
        return False


async def _send_rows(encoder: BodyEncoder, answer: StreamedAnswer, send: Send) -> None:
    await _send(send, encoder.begin())
    async for batch, note in answer.batches:
        if encoder.slow and batch.num_rows * batch.num_columns > CELLS_ON_LOOP:
            rows = max(1, CELLS_PER_SLICE // batch.num_columns)
            for start in range(0, batch.num_rows, rows):
                await _send(send, await off_loop(encoder.encode, batch.slice(start, rows), note))
        else:
            await _send(send, encoder.encode(batch, note))
        if encoder.enough:
            return
    trailer = answer.trailer()
    await _send(send, await off_loop(encoder.finish, trailer) if encoder.slow else encoder.finish(trailer))


async def _send(send: Send, data: Data) -> None:
    if len(data):
        await send({"type": "http.response.body", "body": data, "more_body": True})


def while_connected(receive: Receive, after: asyncio.Event | None = None) -> AbstractAsyncContextManager[None]:
    """Cancel what stands in the block when the client leaves; it ends with `Stopped` then, which nobody hears.

    With `after`, look from then on: until it is set, somebody else receives.
    """

    async def left() -> Exception:
        if after is not None:
            await after.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        return Stopped("the client has left")

    return until(left)
