"""What a writer's port speaks: the bare bytes of the line, or RFC 2217.

A dialect belongs to one client. Before the client has the line, it can greet it and tell it something; afterwards
`carry` takes what the client sent to the line, and `watch` tells the client what happens to the line unasked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastflight.bridge.control import LineControl
from fastflight.bridge.line import LineAccess
from fastflight.protocol.rfc2217 import LineState, NotifyLine, NotifyModem, Resume, Signature, Suspend
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Command, Negotiated, TelnetCode, TelnetData

# What is taken apart at once: a flood of the shortest commands keeps the loop for some ten milliseconds.
FEED_BYTES = 64 * 1024
# Not every system tells when a modem line changes, and none through every adapter: real ports are asked, while an
# RFC 2217 client is there to be told.
MODEM_SECONDS = 0.5
# Both of the port's sending buffers: what was written has left.
SENT = LineState.HOLDING_EMPTY | LineState.SHIFT_EMPTY

Send = Callable[[bytes], None]


class Dialect(Protocol):
    """One client's way to speak."""

    @property
    def name(self) -> str:
        """The kind of port, for people."""

    @property
    def suspended(self) -> bool:
        """The client wants no data now."""

    def greeting(self) -> bytes:
        """What the client is sent first."""

    def encode(self, data: bytes) -> bytes:
        """Bytes of the line, as the client gets them."""

    async def carry(self, data: bytes, channel: LineAccess, send: Send) -> None:
        """What the client sent, taken to the line; answers go to `send`. `TransportError` when the line fails."""

    async def watch(self, channel: LineAccess, send: Send) -> None:
        """Tell the client of the line, until cancelled."""


class Raw:
    """The bytes as they are."""

    name = "raw socket"
    suspended = False

    def greeting(self) -> bytes:
        return b""

    def encode(self, data: bytes) -> bytes:
        return data

    async def carry(self, data: bytes, channel: LineAccess, send: Send) -> None:
        await channel.write(data)

    async def watch(self, channel: LineAccess, send: Send) -> None:
        await asyncio.Event().wait()


class Rfc2217:
    """Telnet, with the serial line's control in it."""

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

    async def carry(self, data: bytes, channel: LineAccess, send: Send) -> None:
        control = self._on(channel)
        for start in range(0, len(data), FEED_BYTES):
            if start:
                await asyncio.sleep(0)  # the loop's other clients
            for event in self._server.feed(data[start : start + FEED_BYTES]):
                if isinstance(event, TelnetData):
                    await channel.write(event.data)
                else:
                    await self._do(event, control)
                    send(self._server.take())
            send(self._server.take())

    async def watch(self, channel: LineAccess, send: Send) -> None:
        control = self._on(channel)
        while channel.control is not None and control.has_modem:
            await self._tell_modem(control, force=False)
            send(self._server.take())
            await asyncio.sleep(MODEM_SECONDS)
        await asyncio.Event().wait()

    def _on(self, channel: LineAccess) -> LineControl:
        if self._control is None:
            self._control = LineControl(channel)
        return self._control

    async def _do(self, event: Event, control: LineControl) -> None:
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
