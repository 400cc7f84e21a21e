"""What an RFC 2217 client asks of the serial line, done where there is one and acknowledged where there is none.

A child process or a raw socket has no speed and no control lines: there the values asked for are said to be in force,
with the modem lines as a device that is ready would drive them. So it is with the control lines of a port that has
none, a pseudo-terminal say: tools would not go on without them. A speed that a port cannot do is answered with the one
in force. Flow control never is: boards do not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from fastflight.bridge.line import LineAccess
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.rfc2217 import (
    Control,
    Flow,
    InboundFlow,
    Purge,
    SetBaud,
    SetBreak,
    SetDataBits,
    SetDtr,
    SetFlow,
    SetInboundFlow,
    SetParity,
    SetRts,
    SetStopBits,
    Setting,
)
from fastflight.transport import LineSettings, ModemLines, SerialControl

# A remote serial port answers within a round trip or two.
CONTROL_SECONDS = 5.0
# One that has not told the modem lines by then does not. Clients wait meanwhile, pyserial's for 3 s in all.
MODEM_SECONDS = 0.5
# Telnet's own BREAK has no length; this is long enough at every speed.
BREAK_SECONDS = 0.25
# A device that has no modem lines is there and ready.
READY = ModemLines(cts=True, dsr=True, cd=True)


class LineControl:
    """The serial side of `channel`, for one client."""

    def __init__(self, channel: LineAccess) -> None:
        self._channel = channel
        # In force where the line has none of its own.
        self._settings = LineSettings()
        self._break = False
        # Whether there is any use in asking again.
        self.has_modem = True

    async def apply(self, request: Setting | Control | Purge) -> Setting | Control | Purge:
        """Do what is asked, and give what is in force then. `TransportClosed` when the line is lost."""
        try:
            match request:
                case SetBaud() | SetDataBits() | SetParity() | SetStopBits():
                    await self._configure(request)
                case SetDtr(on) if on is not None and on != self._channel.driven.dtr:
                    self._channel.driven.dtr = on
                    await self._assign(dtr=on)
                case SetRts(on) if on is not None and on != self._channel.driven.rts:
                    self._channel.driven.rts = on
                    await self._assign(rts=on)
                case SetBreak(on) if on is not None and on != self._break:
                    self._break = on
                    await self._assign(sending_break=on)
                case Purge(received, unsent):
                    if (control := self._channel.control) is not None:
                        await control.apurge(CONTROL_SECONDS, received=received, unsent=unsent)
        except TransportClosed:
            raise
        except TransportError:
            pass  # the port cannot
        return self._in_force(request)

    async def send_break(self) -> None:
        """Hold the line in break for a moment."""
        with contextlib.suppress(TransportError):
            await self._assign(sending_break=True)
            await asyncio.sleep(BREAK_SECONDS)
            await self._assign(sending_break=False)

    async def modem(self) -> ModemLines:
        """The lines that the device drives, now."""
        control = self._channel.control
        if control is not None and self.has_modem:
            try:
                return await control.amodem(MODEM_SECONDS)
            except TransportClosed:
                raise
            except TransportTimeout:
                pass  # a remote port that does not tell them, or is slow
            except TransportError:
                self.has_modem = False  # a pseudo-terminal, or an adapter that cannot read them
        return READY

    async def _configure(self, request: Setting) -> None:
        match request:
            case SetBaud(int(baud)):
                wanted = replace(self._now, baud=baud)
            case SetDataBits(int(bits)):
                wanted = replace(self._now, data_bits=bits)
            case SetParity(str(parity)):
                wanted = replace(self._now, parity=parity)
            case SetStopBits(float(stop_bits)):
                wanted = replace(self._now, stop_bits=stop_bits)
            case _:
                return  # a question
        control = self._channel.control
        if control is None:
            self._settings = wanted
        elif wanted != control.settings:
            await control.aconfigure(wanted, CONTROL_SECONDS)

    async def _assign(
        self, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        control: SerialControl | None = self._channel.control
        if control is not None:
            await control.aassign(CONTROL_SECONDS, dtr=dtr, rts=rts, sending_break=sending_break)

    @property
    def _now(self) -> LineSettings:
        control = self._channel.control
        return self._settings if control is None else control.settings

    def _in_force(self, request: Setting | Control | Purge) -> Setting | Control | Purge:
        match request:
            case SetBaud():
                return SetBaud(self._now.baud)
            case SetDataBits():
                return SetDataBits(self._now.data_bits)
            case SetParity():
                return SetParity(self._now.parity)
            case SetStopBits():
                return SetStopBits(self._now.stop_bits)
            case SetDtr():
                return SetDtr(self._channel.driven.dtr)
            case SetRts():
                return SetRts(self._channel.driven.rts)
            case SetBreak():
                return SetBreak(self._break)
            case SetFlow():
                return SetFlow(Flow.NONE)
            case SetInboundFlow():
                return SetInboundFlow(InboundFlow.NONE)
            case Purge():
                return request
