"""`/ws/repl/{device}`: a terminal on a device. It holds the device exclusively while the WebSocket is open.

The message `{"ready": {"device": ...}}` says that the client has the device. If somebody else holds it, the client gets
an error that names the holder. After `ready`, each message of the client, binary or text, is sent to the device
unchanged, Ctrl-C included. The device's output comes in binary messages. Other text messages are `{"note": ...}` about
missed data, then `{"trailer": ...}` at the end, or `{"error": ...}` instead.
"""

from __future__ import annotations

import pyarrow as pa

from fastflight.concurrency import Channel
from fastflight.errors import RequestError, Stopped, nearest
from fastflight.gateway.backend import RAW, Backend, StreamedAnswer
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import Opening, Talk
from fastflight.gateway.ws.tickets import wrong_ticket
from fastflight.service.requests import DeviceSession
from fastflight.service.source import held_bytes
from fastflight.tables.bare import one_content

# Bytes that wait between a device and its terminal. As many may be in the sender, and each may be one batch over.
AHEAD_BYTES = 128 * 1024
# Bytes that wait to be sent to the device: a pasted file. A line at 115200 baud takes three minutes for it. A single
# key is a batch, and takes a kilobyte.
MAX_INPUT_BYTES = 2 * 1024 * 1024


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
            typed = Channel[pa.RecordBatch](MAX_INPUT_BYTES)
            async with cancel_when(lambda: _receive_input(channel, typed)):
                async with self._backend.talk(request, typed, ahead_bytes=AHEAD_BYTES, caller=opening.caller) as answer:
                    await channel.tell(ready={"device": opening.rest})
                    return await _send_output(answer, channel)

        return talk


async def _receive_input(channel: WebSocketChannel, typed: Channel[pa.RecordBatch]) -> Exception:
    """Pass on what the client sends. Return an error when too much waits.

    It never waits for the device, and so notices at once when the client leaves.
    """
    while True:
        message = await channel.receive()
        data = message.encode(errors="replace") if isinstance(message, str) else message
        if not data:
            continue
        batch = pa.RecordBatch.from_arrays([one_content(data)], schema=RAW)
        try:
            has_room = typed.add(batch, held_bytes(batch, len(data)))
        except Stopped:  # the exchange has ended, and its answer says why
            continue
        if not has_room:
            return HttpRefusal(
                413,
                f"more than {MAX_INPUT_BYTES} bytes wait for the device",
                where="message",
                hint="Send less at once, or upload a file",
            )


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
