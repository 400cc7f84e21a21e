"""`/ws/repl/{device}`: a terminal on a device. It holds the device exclusively while the WebSocket is open.

The message `{"ready": {"device": ...}}` says that the client has the device. If somebody else holds it, the client gets
an error that names the holder. After `ready`, each message of the client, binary or text, is sent to the device
unchanged, Ctrl-C included. The device's output comes in binary messages. Other text messages are `{"note": ...}` about
missed data, then `{"trailer": ...}` at the end, or `{"error": ...}` instead.
"""

from __future__ import annotations

from fastflight.errors import RequestError, nearest
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import Opening, Talk
from fastflight.gateway.ws.terminal_input import TerminalInput
from fastflight.gateway.ws.tickets import wrong_ticket
from fastflight.service.requests import DeviceSession

# Bytes that wait between a device and its terminal. As many may be in the sender, and each may be one batch over.
AHEAD_BYTES = 128 * 1024


class Repls:
    """Accepts WebSockets of the kind `repl`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __call__(self, opening: Opening) -> Talk:
        if opening.query:
            unknown = next(iter(opening.query))
            raise RequestError("unknown key", where=unknown[:80], hint=nearest(unknown, ["ticket"]))
        granted = None if opening.grant is None else opening.grant.request
        if granted is not None and getattr(granted, "device", None) != opening.rest:
            raise wrong_ticket("It is for another device")

        async def talk(channel: WebSocketChannel) -> str:
            keys = {"type": DeviceSession.type, "device": opening.rest, "flush_ms": 0}
            request = self._backend.make_request(keys)
            terminal_input = TerminalInput()
            async with cancel_when(lambda: _receive_input(channel, terminal_input)):
                async with self._backend.talk(
                    request, aiter(terminal_input), ahead_bytes=AHEAD_BYTES, caller=opening.caller
                ) as answer:
                    await channel.tell(ready={"device": opening.rest})
                    return await _send_output(answer, channel)

        return talk


async def _receive_input(channel: WebSocketChannel, terminal_input: TerminalInput) -> Exception:
    while True:
        data = await channel.receive()
        terminal_input.put(data.encode(errors="replace") if isinstance(data, str) else data)


async def _send_output(answer: StreamedAnswer, channel: WebSocketChannel) -> str:
    """Send the device's output until it ends; return why it ended."""
    async for batch, note in answer.batches:
        if note is not None:
            await channel.tell(note=note)
        directions = batch.column("direction").to_pylist()
        chunks = zip(directions, batch.column("data").to_pylist(), strict=True)
        if data := b"".join(data for direction, data in chunks if direction == "rx"):
            await channel.send(data)
    trailer = answer.trailer()
    await channel.tell(trailer=trailer)
    return str(trailer.get("ended", "finished"))
