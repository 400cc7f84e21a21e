"""Streams the rows of a request as an HTTP answer.

Nothing is sent before the source has opened: until then an error gets an answer with its own status. A later error is
sent within the format, if that can carry it. Then the answer is cut off before its end, which every HTTP client
reports.

Each batch is sent when the client has taken the ones before. So a client that does not read pauses the source as soon
as the channel is full. A client that leaves cancels the source.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pyarrow as pa
from starlette.responses import Response

from fastflight.access.identity import Identity
from fastflight.concurrency import off_loop
from fastflight.errors import Stopped
from fastflight.gateway.asgi import Header, Receive, Scope, Send
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.content.formats import BodyEncoder, Data
from fastflight.gateway.errors import error_answer_off_loop
from fastflight.service.requests import FILE_SUMMARY, Request
from fastflight.tables.summary import one_line

# HTTP clients and proxies refuse heads of more than 8 KiB or 16 KiB.
MAX_HEADER_BYTES = 4096
# Batches of up to so many cells are encoded as text on the loop. Larger ones are encoded in a thread, in slices.
CELLS_ON_LOOP = 256
CELLS_PER_SLICE = 32 * 1024


@dataclass(frozen=True, slots=True)
class AnswerStart:
    """Status and headers of an answer. Without an `encoder` it has no body, and its rows are not read."""

    status: int
    headers: list[Header]
    encoder: BodyEncoder | None


class Streamed(Response):
    """Answers with the rows of `request` for `caller`. `make` returns the encoder for their schema."""

    def __init__(
        self, backend: Backend, request: Request, caller: Identity, make: Callable[[pa.Schema], BodyEncoder]
    ) -> None:
        super().__init__()
        self._backend = backend
        self._request = request
        self._caller = caller
        self._make = make

    async def begin(self, answer: StreamedAnswer) -> AnswerStart | Request | Response:
        """Return how to begin `answer`, which has just opened; or a request to read, or a response to send, instead."""
        encoder = self._make(answer.schema)
        headers = [
            (b"content-type", encoder.media_type.encode()),
            (b"cache-control", b"no-store"),
            (b"fastflight-path", path_of(answer)),
        ]
        if summary := summary_header(answer):
            headers.append((b"fastflight-summary", summary))
        return AnswerStart(200, headers, encoder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. The request's content must have been read."""
        following: AnswerStart | Request | Response = self._request
        complete = True
        async with while_connected(receive):
            while isinstance(following, Request):
                async with self._backend.read(following, caller=self._caller) as answer:
                    following = await self.begin(answer)
                    if isinstance(following, AnswerStart):
                        head_only = scope["method"] == "HEAD"
                        complete = await _send_answer(following, None if head_only else following.encoder, answer, send)
        # Sent outside of `while_connected`, which would take the end of the answer for a client that has left.
        if isinstance(following, Response):
            await following(scope, receive, send)
        elif complete:
            await send({"type": "http.response.body", "body": b""})


def path_of(answer: StreamedAnswer) -> bytes:
    """Return which path served the answer: `sync` or `async`."""
    return bytes((answer.schema.metadata or {}).get(b"fastflight.path", b""))


def summary_header(answer: StreamedAnswer) -> bytes:
    """Return the summary of the file that was read, as JSON for a header; empty if there is none, or not yet.

    It has the first of the rejected rows only. Its key `text` is a line for people.
    """
    metadata = answer.schema.metadata or {}
    if FILE_SUMMARY not in metadata:
        return b""
    summary = json.loads(metadata[FILE_SUMMARY])
    if "rejected_rows" in summary:
        summary["rejected_rows"] = summary["rejected_rows"][:1]
    header = json.dumps({**summary, "text": one_line(summary)}).encode()
    if len(header) <= MAX_HEADER_BYTES:
        return header
    return json.dumps({"rejected": summary.get("rejected", 0), "text": "the trailer of the answer says more"}).encode()


async def _send_answer(start: AnswerStart, encoder: BodyEncoder | None, answer: StreamedAnswer, send: Send) -> bool:
    """Send the answer, except the end of its body; return False if its rows ended in an error."""
    await send({"type": "http.response.start", "status": start.status, "headers": start.headers})
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
    trailer = answer.trailer()
    await _send(send, await off_loop(encoder.finish, trailer) if encoder.slow else encoder.finish(trailer))


async def _send(send: Send, data: Data) -> None:
    if len(data):
        await send({"type": "http.response.body", "body": data, "more_body": True})


def while_connected(receive: Receive, after: asyncio.Event | None = None) -> AbstractAsyncContextManager[None]:
    """Cancel the block when the client leaves; the block then raises `Stopped`, which no client sees.

    With `after`, watch only once it is set: until then the block itself receives the request's content.
    """

    async def left() -> Exception:
        if after is not None:
            await after.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        return Stopped("the client has left")

    return cancel_when(left)
