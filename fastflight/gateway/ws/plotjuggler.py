"""`/ws/plotjuggler/{device}`: the rows that a device prints, as they come, each a text message in PlotJuggler's form.

A message is `{"timestamp": seconds, device: {column: value, ...}}`. The columns are those of the device's rows: as its
entry declares them, or as they are recognised. Columns that come later are in the messages from then on. The query has
`columns`, with commas between them, and `since_seconds`. Messages of the client are ignored.
"""

from __future__ import annotations

from typing import Any

from fastflight.gateway.backend import Backend
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.content.files import keys_of
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import Opening, Talk
from fastflight.service.requests import LAYOUT_CHANGED, DeviceSession
from fastflight.sources.plot_messages import plot_messages


class PlotJugglers:
    """Accepts WebSockets of the kind `plotjuggler`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __call__(self, opening: Opening) -> Talk:
        keys: dict[str, Any] = {"type": DeviceSession.type, "device": opening.rest, "as": "rows", "reconnect": True}
        first = self._backend.make_request({**keys, **keys_of(opening.query)}, strict=False)
        assert isinstance(first, DeviceSession)
        self._backend.permit(first, "read", opening.caller)
        # The time of a row is a column of each answer.
        columns = None if first.columns is None else tuple(dict.fromkeys(("time", *first.columns)))

        async def talk(channel: WebSocketChannel) -> str:
            request = first.model_copy(update={"columns": columns})
            async with cancel_when(channel.left):
                while True:
                    async with self._backend.read(request, caller=opening.caller) as answer:
                        async for batch, _ in answer.batches:
                            for message in plot_messages(opening.rest, batch):
                                await channel.send(message)
                        summary = answer.trailer()
                    if (ended := summary.get("ended")) != LAYOUT_CHANGED:
                        return str(ended or "finished")
                    update = {"since_seq": summary["next_seq"], "since_seconds": None}
                    request = request.model_copy(update=update)

        return talk
