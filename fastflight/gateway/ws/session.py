"""`/ws/session`: the rows of a request as they come, live ones above all.

The client gives the request in a ticket, in the query (`?request=`), or as its first message; its later messages are
refused. `?as=` or the subprotocol (`arrow`, `json`) says how it wants the rows. Text messages say what is not rows:
`{"note": ...}` at its place among them, `{"trailer": ...}` at the end, `{"error": ...}` instead of that.

A client that does not read holds up the hand-off, then the source: a live session takes no more from its device's tap,
which forgets what is old. When the client reads again, a note says exactly what it has missed.
"""

from __future__ import annotations

import asyncio

from fastflight.concurrency import off_loop
from fastflight.errors import RequestError, nearest
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.content.streaming import CELLS_ON_LOOP, CELLS_PER_SLICE
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.watching import until
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.messages import MESSAGES, Message, MessageEncoder
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening
from fastflight.gateway.ws.tickets import other
from fastflight.service import encode
from fastflight.service.requests import Request

# What waits between the source and a WebSocket. As much again may be in the sender's hands, and a batch beside each.
AHEAD_BYTES = 128 * 1024
# A client that may give its request has opened the WebSocket for that.
FIRST_SECONDS = 10.0
KEYS = ("as", "request", "ticket")


class Sessions:
    """The kind `session`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Chunks that clients were too slow for, so far.
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
            asked = await self._asked(opening, channel)
            async with until(lambda: _silent(channel)):
                async with self._backend.read(asked, ahead_bytes=AHEAD_BYTES, caller=opening.caller) as answer:
                    return await self._send(MESSAGES[format_](answer.schema), answer, channel)

        return AcceptedUpgrade(talk, offered if offered == format_ else None)

    async def _asked(self, opening: Opening, channel: WebSocketChannel) -> Request:
        """What the client wants: what its ticket is for, or what it says."""
        grant, content = opening.grant, opening.query.get("request")
        if grant is not None:
            assert grant.request is not None, "tickets for sessions have one"
            if content is not None and encode(self._backend.decode(content.encode())) != encode(grant.request):
                raise other("Leave the request out: the ticket has it")
            return grant.request
        said = await _first(channel) if content is None else content
        return self._backend.decode(said.encode(errors="replace") if isinstance(said, str) else said)

    async def _send(self, encoder: MessageEncoder, answer: StreamedAnswer, channel: WebSocketChannel) -> str:
        """All rows, and why there are no more."""
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


async def _silent(channel: WebSocketChannel) -> Exception:
    """What ends it from the other side."""
    await channel.receive()
    return RequestError(
        "nothing more is taken here", where="message", hint="Open another WebSocket for another request"
    )
