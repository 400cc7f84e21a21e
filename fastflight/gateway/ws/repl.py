"""`/ws/repl/{device}`: a terminal on a device. One at a time has its line, for as long as the WebSocket is open.

`{"ready": {"device": ...}}` comes when the line is had; who cannot have it gets the error, which names its holder. From
then on messages of either kind are sent to the device as they are, Ctrl-C among them, and what it says comes in binary
messages. Text messages are those of a session: a note of what was missed, the trailer, an error.
"""

from __future__ import annotations

import json

from fastflight.errors import RequestError, nearest
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.watching import until
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.session import AHEAD_BYTES
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening
from fastflight.gateway.ws.tickets import other
from fastflight.gateway.ws.typed import Typed
from fastflight.service.requests import DeviceSession


class Repls:
    """The kind `repl`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __call__(self, opening: Opening) -> AcceptedUpgrade:
        if opening.query:
            unknown = next(iter(opening.query))
            raise RequestError("unknown key", where=unknown[:80], hint=nearest(unknown, ["ticket"]))
        granted = None if opening.grant is None else opening.grant.request
        if granted is not None and getattr(granted, "device", None) != opening.rest:
            raise other("It is for another device")

        async def talk(channel: WebSocketChannel) -> str:
            content = {"type": DeviceSession.type, "device": opening.rest, "flush_ms": 0}
            request = self._backend.decode(json.dumps(content).encode())
            typed = Typed()
            async with until(lambda: _type(channel, typed)):
                async with self._backend.talk(
                    request, aiter(typed), ahead_bytes=AHEAD_BYTES, caller=opening.caller
                ) as answer:
                    await channel.tell(ready={"device": opening.rest})
                    return await _say(answer, channel)

        return AcceptedUpgrade(talk)


async def _type(channel: WebSocketChannel, typed: Typed) -> Exception:
    while True:
        data = await channel.receive()
        typed.put(data.encode(errors="replace") if isinstance(data, str) else data)


async def _say(answer: StreamedAnswer, channel: WebSocketChannel) -> str:
    """What the device says, until there is no more, and why."""
    async for batch, note in answer.batches:
        if note is not None:
            await channel.tell(note=note)
        directions = batch.column("direction").to_pylist()
        said = zip(directions, batch.column("data").to_pylist(), strict=True)
        if data := b"".join(data for direction, data in said if direction == "rx"):
            await channel.send(data)
    trailer = answer.trailer()
    await channel.tell(trailer=trailer)
    return str(trailer.get("ended", "finished"))
