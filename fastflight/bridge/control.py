"""Applies an RFC 2217 client's requests to the serial line, or acknowledges them where there is no serial line.

A child process or a raw socket has no speed and no control lines. Tools would stop without them, so `LineControl`
answers that each requested value is in force, and that the device is connected and ready (`READY`). If a port has no
control lines, such as a pseudo-terminal, it answers requests for them in the same way. If a port cannot set a speed,
the answer is the speed in force. For flow control the answer is always "none", because boards do not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

from fastflight.bridge.channel import PortChannel
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.rfc2217 import LINE_NAMES, Flow, InboundFlow, Purge, Setting
from fastflight.transport import LineSettings, ModemLines, SerialControl

# A remote serial port answers within a round trip or two.
CONTROL_SECONDS = 5.0
# A remote port that has not reported its modem lines by then does not report them. The client waits meanwhile;
# pyserial's waits for 3 s in all.
MODEM_SECONDS = 0.5
# Telnet's BREAK command has no length; this is long enough at every speed.
BREAK_SECONDS = 0.25
# The modem lines to report for a line that has none: the device is connected and ready.
READY = ModemLines(cts=True, dsr=True, cd=True)


class LineControl:
    """The serial control of `channel`, for one client."""

    def __init__(self, channel: PortChannel) -> None:
        self._channel = channel
        # The settings to report where the line has none.
        self._settings = LineSettings()
        self._break = False
        # Whether the port can report its modem lines, as far as it is known.
        self.has_modem = True

    async def apply(self, request: Setting | Purge) -> Setting | Purge:
        """Apply `request` and return the value then in force. Raises `TransportClosed` when the line is lost."""
        try:
            match request:
                case Purge(received, unsent):
                    if (control := self._channel.control) is not None:
                        await control.apurge(CONTROL_SECONDS, received=received, unsent=unsent)
                case Setting(_, None):
                    pass  # a question
                case Setting("dtr" | "rts" as name, on):
                    if on != getattr(self._channel.driven, name):
                        setattr(self._channel.driven, name, on)
                        await self._assign(**{name: bool(on)})
                case Setting("sending_break", on):
                    if on != self._break:
                        self._break = bool(on)
                        await self._assign(sending_break=self._break)
                case Setting(name, value) if name in LINE_NAMES:
                    await self._configure(replace(self._now, **{name: value}))  # type: ignore[arg-type]
        except TransportClosed:
            raise
        except TransportError:
            pass  # the port cannot do it
        return self._in_force(request)

    async def send_break(self) -> None:
        """Hold the line in break for `BREAK_SECONDS`."""
        with contextlib.suppress(TransportError):
            await self._assign(sending_break=True)
            await asyncio.sleep(BREAK_SECONDS)
            await self._assign(sending_break=False)

    async def modem(self) -> ModemLines:
        """Return the modem lines that the device drives now; `READY` if the port does not report them."""
        control = self._channel.control
        if control is not None and self.has_modem:
            try:
                return await control.amodem(MODEM_SECONDS)
            except TransportClosed:
                raise
            except TransportTimeout:
                pass  # a remote port that does not report them, or is slow
            except TransportError:
                self.has_modem = False  # a pseudo-terminal, or an adapter that cannot read them
        return READY

    async def _configure(self, settings: LineSettings) -> None:
        control = self._channel.control
        if control is None:
            self._settings = settings
        elif settings != control.settings:
            await control.aconfigure(settings, CONTROL_SECONDS)

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

    def _in_force(self, request: Setting | Purge) -> Setting | Purge:
        value: Any
        match request:
            case Purge():
                return request
            case Setting("dtr" | "rts" as name):
                value = getattr(self._channel.driven, name)
            case Setting("sending_break"):
                value = self._break
            case Setting("flow"):
                value = Flow.NONE
            case Setting("inbound_flow"):
                value = InboundFlow.NONE
            case Setting(name):
                value = getattr(self._now, name)
        return Setting(request.name, value)
