"""Sends rows to PlotJuggler, as JSON messages to its "WebSocket Server".

PlotJuggler acknowledges nothing and keeps nothing: rows have arrived when they were sent. Rows without a known time are
left out.
"""

from __future__ import annotations

import pyarrow as pa
from websockets import ConnectionClosed
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from fastflight.errors import TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.output import ANSWER_SECONDS, Message, Refusal
from fastflight.sources.plot_messages import plot_messages


class PlotJugglerOutput:
    """An `Output`."""

    def __init__(self, device: str, address: OutputAddress) -> None:
        self._device = device
        self._address = address
        self._connection: ClientConnection | None = None

    async def open(self) -> None:
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        url = f"ws://{host}:{self._address.port}"
        try:
            # PlotJuggler does not compress, and does not answer pings while its window is busy.
            self._connection = await connect(
                url, compression=None, ping_interval=None, open_timeout=ANSWER_SECONDS, proxy=None
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            hint = 'Start the streaming "WebSocket Server" in PlotJuggler'
            raise TransportError(f"it cannot be reached ({error})", where=self._address.label, hint=hint) from error

    def encode(self, rows: pa.RecordBatch) -> Message:
        return Message(rows.num_rows, plot_messages(self._device, rows))

    async def send(self, message: Message) -> Refusal | None:
        assert self._connection is not None
        try:
            for text in message.content:
                await self._connection.send(text)
        except (ConnectionClosed, OSError) as error:
            raise self._lost() from error
        unknown = message.rows - len(message.content)
        return Refusal(unknown, "their time is not known") if unknown else None

    def check(self) -> None:
        if self._connection is not None and self._connection.close_code is not None:
            raise self._lost()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _lost(self) -> TransportError:
        return TransportError("the connection was lost", where=self._address.label, hint="Was PlotJuggler closed?")
