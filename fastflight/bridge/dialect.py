"""The protocol of a writer's port: the plain bytes of the line, or RFC 2217.

A `Dialect` belongs to one client. `greeting` and `encode` work before the client holds the line. Afterwards `carry`
passes what the client sent to the line, and `watch` reports changes of the line to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastflight.bridge.channel import PortChannel
from fastflight.bridge.control import LineControl
from fastflight.protocol.rfc2217 import LineState, NotifyLine, NotifyModem, Resume, Signature, Suspend
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Command, Negotiated, TelnetCode, TelnetData

# How many bytes to parse in one turn of the loop: a flood of the shortest commands blocks it for about ten
# milliseconds.
FEED_BYTES = 64 * 1024
# How often to poll a port's modem lines while an RFC 2217 client is connected. Not every system, and no system with
# every adapter, reports when a modem line changes.
MODEM_SECONDS = 0.5
# The line state to report: both of the port's sending buffers are empty.
SENT = LineState.HOLDING_EMPTY | LineState.SHIFT_EMPTY

Send = Callable[[bytes], None]


class Dialect(Protocol):
    """The protocol that one client of a writer's port speaks."""

    @property
    def name(self) -> str:
        """The kind of port, for messages to people."""

    @property
    def suspended(self) -> bool:
        """Whether the client has asked to receive no data for now."""

    def greeting(self) -> bytes:
        """Return the first bytes to send to the client."""

    def encode(self, data: bytes) -> bytes:
        """Return bytes of the line in the form to send to the client."""

    async def carry(self, data: bytes, channel: PortChannel, send: Send) -> None:
        """Pass what the client sent to the line, and call `send` with answers for the client.

        Raises `TransportError` if the line fails.
        """

    async def watch(self, channel: PortChannel, send: Send) -> None:
        """Report changes of the line to the client with `send`, until cancelled."""


class Raw:
    """The plain bytes of the line."""

    name = "raw socket"
    suspended = False

    def greeting(self) -> bytes:
        return b""

    def encode(self, data: bytes) -> bytes:
        return data

    async def carry(self, data: bytes, channel: PortChannel, send: Send) -> None:
        await channel.write(data)

    async def watch(self, channel: PortChannel, send: Send) -> None:
        await asyncio.Event().wait()


class Rfc2217:
    """Telnet with the commands of RFC 2217, which control the serial line."""

    name = "RFC 2217"

    def __init__(self) -> None:
        self._server = Rfc2217Server()
        self._control: LineControl | None = None

    @property
    def suspended(self) -> bool:
        return self._server.suspended

    def greeting(self) -> bytes:
        return self._server.take()

    def encode(self, data: bytes) -> bytes:
        return self._server.encode(data)

    async def carry(self, data: bytes, channel: PortChannel, send: Send) -> None:
        control = self._line_control(channel)
        for start in range(0, len(data), FEED_BYTES):
            if start:
                await asyncio.sleep(0)  # let other clients run
            for event in self._server.feed(data[start : start + FEED_BYTES]):
                if isinstance(event, TelnetData):
                    await channel.write(event.data)
                else:
                    await self._handle(event, control)
                    send(self._server.take())
            send(self._server.take())

    async def watch(self, channel: PortChannel, send: Send) -> None:
        control = self._line_control(channel)
        while channel.control is not None and control.has_modem:
            await self._tell_modem(control, force=False)
            send(self._server.take())
            await asyncio.sleep(MODEM_SECONDS)
        await asyncio.Event().wait()

    def _line_control(self, channel: PortChannel) -> LineControl:
        if self._control is None:
            self._control = LineControl(channel)
        return self._control

    async def _handle(self, event: Event, control: LineControl) -> None:
        match event:
            case NotifyModem():
                await self._tell_modem(control, force=True)
            case NotifyLine():
                self._server.notify_line(SENT, force=True)
            case Command(TelnetCode.BREAK):
                await control.send_break()
            case TelnetData() | Command() | Negotiated() | Signature() | Suspend() | Resume():
                pass
            case _:
                self._server.answer(await control.apply(event))

    async def _tell_modem(self, control: LineControl, *, force: bool) -> None:
        lines = await control.modem()
        self._server.notify_modem(cts=lines.cts, dsr=lines.dsr, ri=lines.ri, cd=lines.cd, force=force)
