"""`rfc2217://host:port?baud=115200&dtr=0&rts=0`: a serial port behind a server on the network.

Opening negotiates everything in one round trip, and changes only what the URL names: without `baud` the remote port
keeps its speed, without `dtr` and `rts` these lines keep their state. No call sleeps; each waits for the server's
answer.

Three callers may use an open port at the same time, from threads or on a loop: one that reads, one that writes, and one
that controls the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from fastflight.errors import ProtocolError, TransportError
from fastflight.protocol.rfc2217 import LINE_NAMES, ModemState, Purge, Setting
from fastflight.protocol.rfc2217_client import Request, Rfc2217Client
from fastflight.transport import url_parts
from fastflight.transport.framed import FramedPort
from fastflight.transport.port import LineSettings, ModemLines, StatelessAddress
from fastflight.transport.socket import SocketAddress

# The options of a URL, all of which are public.
OPTIONS = SHOWN = ("baud", "dtr", "rts")


@dataclass(frozen=True, slots=True)
class Rfc2217Address(StatelessAddress):
    """A serial port behind a server. Settings that are None stay as they are there."""

    url: str
    host: str
    port: int
    baud: int | None = None
    dtr: bool | None = None
    rts: bool | None = None

    async def aopen(self, timeout: float) -> Rfc2217Port:
        end = asyncio.get_running_loop().time() + timeout
        endpoint = SocketAddress(self.url, self.host, self.port)
        port = await endpoint.aconnect(lambda: Rfc2217Port(self.url), timeout)
        try:
            await port.abegin(self._requests, max(0.0, end - asyncio.get_running_loop().time()))
        except ProtocolError as error:
            await port.aclose()
            hint = "It may be a raw line: open it as socket:// instead"
            raise TransportError(error.what, where=self.url, hint=hint) from error
        except BaseException:
            await port.aclose()
            raise
        return port

    @property
    def _requests(self) -> list[Request]:
        line = [Setting("baud", self.baud), *(Setting(name, None) for name in LINE_NAMES[1:])]
        return [*line, *_controls(dtr=self.dtr, rts=self.rts)]


class Rfc2217Port(FramedPort):
    """A serial port behind a server, which is connected. Call `abegin` first."""

    def __init__(self, where: str) -> None:
        self._client = Rfc2217Client(where)
        super().__init__(self._client, where)

    async def abegin(self, requests: Sequence[Request], timeout: float) -> None:
        """Negotiate RFC 2217 with the server, and have it execute `requests`, within `timeout` seconds."""
        await self._converse(self._client.open(requests, timeout), timeout)

    @property
    def bytes_per_second(self) -> float | None:
        return self.settings.bytes_per_second if "baud" in self._client.settings else None

    @property
    def settings(self) -> LineSettings:
        """The settings that the server last reported, and defaults for those that it never reported."""
        known = self._client.settings
        return LineSettings(**{name: known[name] for name in LINE_NAMES if name in known})

    def _is_writable(self) -> bool:
        return super()._is_writable() and (not self._client.suspended or self._failure is not None)

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        self._check_guard()
        requests = [Setting(name, getattr(settings, name)) for name in LINE_NAMES]
        await self._converse(self._client.insist(requests, timeout), timeout)

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        self._check_guard()
        requests = _controls(dtr=dtr, rts=rts, sending_break=sending_break)
        await self._converse(self._client.insist(requests, timeout), timeout)

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        self._check_guard()
        if received or unsent:
            await self._converse(self._client.purge(Purge(received, unsent), timeout), timeout)

    async def amodem(self, timeout: float) -> ModemLines:
        return _lines(await self._converse(self._client.modem(timeout), timeout))


def _controls(*, dtr: bool | None, rts: bool | None, sending_break: bool | None = None) -> list[Request]:
    every = [Setting("dtr", dtr), Setting("rts", rts), Setting("sending_break", sending_break)]
    return [control for control in every if control.value is not None]


def _lines(state: ModemState) -> ModemLines:
    return ModemLines(
        cts=ModemState.CTS in state,
        dsr=ModemState.DSR in state,
        ri=ModemState.RI in state,
        cd=ModemState.CD in state,
    )


def parse(url: str, rest: str) -> Rfc2217Address:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    host, port = url_parts.endpoint(url, rest)
    options = dict(url_parts.options(url, rest, OPTIONS))
    baud = url_parts.baud(url, options)
    dtr, rts = (url_parts.flag(url, name, options.get(name)) for name in ("dtr", "rts"))
    return Rfc2217Address(url, host, port, baud, dtr, rts)
