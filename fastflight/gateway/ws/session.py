"""`/ws/session`: streams the rows of a request, above all live ones.

The request comes in a ticket, in the query (`?request=`), or as the client's first message; later messages are refused.
`?as=` or the subprotocol (`arrow`, `json`) selects the encoding of the rows. Everything else comes in text messages:
`{"note": ...}` in its place among the rows, then `{"trailer": ...}` at the end, or `{"error": ...}` instead.

When a client does not read, the channel to it fills up and the source waits: a live session reads no more from its
device's tap, which drops its oldest data. When the client reads again, a note says exactly what it has missed.
"""

from __future__ import annotations

import asyncio

from fastflight.concurrency import off_loop
from fastflight.errors import RequestError, nearest
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.content.streaming import CELLS_ON_LOOP, CELLS_PER_SLICE
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.messages import MESSAGES, Message, MessageEncoder
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening
from fastflight.gateway.ws.tickets import wrong_ticket
from fastflight.service import encode
from fastflight.service.requests import Request
from fastflight.service.wire import parse

# Bytes that wait between the source and a WebSocket. As many may be in the sender, and each may be one batch over.
AHEAD_BYTES = 128 * 1024
# How long a client that sends the request as its first message may take for it.
FIRST_SECONDS = 10.0
KEYS = ("as", "request", "ticket")


class Sessions:
    """Accepts WebSockets of the kind `session`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Chunks that slow clients have missed, for metrics.
        self.missed = 0

    def __call__(self, opening: Opening) -> AcceptedUpgrade:
        if opening.rest:
            raise HttpRefusal(404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/session")
        unknown = next((key for key in opening.query if key not in KEYS), None)
        if unknown is not None:
            raise RequestError("unknown key", where=unknown[:80], hint=nearest(unknown, KEYS))
        offered = next((each for each in opening.subprotocols if each in MESSAGES), None)
        format_ = opening.query.get("as", offered or "arrow")
        if format_ not in MESSAGES:
            raise RequestError(f"{format_[:80]!r} is not a format here", where="as", hint=nearest(format_, MESSAGES))

        async def talk(channel: WebSocketChannel) -> str:
            request = await self._request(opening, channel)
            async with cancel_when(lambda: _refuse_messages(channel)):
                async with self._backend.read(request, ahead_bytes=AHEAD_BYTES, caller=opening.caller) as answer:
                    return await self._send(MESSAGES[format_](answer.schema), answer, channel)

        return AcceptedUpgrade(talk, offered if offered == format_ else None)

    async def _request(self, opening: Opening, channel: WebSocketChannel) -> Request:
        """Return the request of the client's ticket, query or first message."""
        grant, content = opening.grant, opening.query.get("request")
        if grant is not None:
            assert grant.request is not None, "tickets for sessions have one"
            if content is not None and encode(self._parse(content)) != encode(grant.request):
                raise wrong_ticket("Leave the request out: the ticket has it")
            return grant.request
        return self._parse(await _first(channel) if content is None else content)

    def _parse(self, content: bytes | str) -> Request:
        data = content.encode(errors="replace") if isinstance(content, str) else content
        return self._backend.make_request(parse(data, "request"))

    async def _send(self, encoder: MessageEncoder, answer: StreamedAnswer, channel: WebSocketChannel) -> str:
        """Send all rows; return why they ended."""
        await channel.send(encoder.begin())
        async for batch, note in answer.batches:
            if note is not None:
                if "gap" in note:
                    self.missed += note["gap"]["last"] - note["gap"]["first"] + 1
                await channel.tell(note=note)
                if not batch.num_rows:
                    continue
            if encoder.slow and batch.num_rows * batch.num_columns > CELLS_ON_LOOP:
                rows = max(1, CELLS_PER_SLICE // batch.num_columns)
                for start in range(0, batch.num_rows, rows):
                    slice_ = batch.slice(start, rows)
                    messages: list[Message] = await off_loop(list, encoder.encode(slice_))
                    for message in messages:
                        await channel.send(message)
            else:
                for message in encoder.encode(batch):
                    await channel.send(message)
        if (last := encoder.finish()) is not None:
            await channel.send(last)
        trailer = answer.trailer()
        await channel.tell(trailer=trailer)
        return str(trailer.get("ended", "finished"))


async def _first(channel: WebSocketChannel) -> bytes | str:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            return await channel.receive()
    except TimeoutError:
        raise HttpRefusal(408, f"no request came within {FIRST_SECONDS:.0f} s", where="message") from None


async def _refuse_messages(channel: WebSocketChannel) -> Exception:
    """Wait for a message, which is an error here; raise `Stopped` when the client leaves."""
    await channel.receive()
    return RequestError(
        "this WebSocket takes no more messages", where="message", hint="Open another WebSocket for another request"
    )
