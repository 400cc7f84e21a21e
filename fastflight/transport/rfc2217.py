"""`rfc2217://host:port?baud=115200&dtr=0&rts=0`: a serial port behind a server on the network.

Opening negotiates everything in one round trip, and changes only what the URL names: without `baud` the remote port
keeps its speed, without `dtr` and `rts` these lines keep their state. No call sleeps; each waits for the server's
answer.

Three callers may use an open port at the same time, from threads or on a loop: one that reads, one that writes, and one
that controls the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fastflight.errors import ProtocolError, TransportError
from fastflight.protocol.rfc2217 import (
    ModemState,
    Purge,
    SetBaud,
    SetBreak,
    SetDataBits,
    SetDtr,
    SetParity,
    SetRts,
    SetStopBits,
)
from fastflight.protocol.rfc2217_client import Request, Rfc2217Client
from fastflight.transport import url_parts
from fastflight.transport.framed import Deadline, FramedPort
from fastflight.transport.port import LineSettings, ModemLines
from fastflight.transport.run import arun, run
from fastflight.transport.socket import SocketAddress, SocketPort

# The options of a URL, all of which are public.
OPTIONS = SHOWN = ("baud", "dtr", "rts")


@dataclass(frozen=True, slots=True)
class Rfc2217Address:
    """A serial port behind a server. Settings that are None stay as they are there."""

    url: str
    host: str
    port: int
    baud: int | None = None
    dtr: bool | None = None
    rts: bool | None = None

    def open(self, timeout: float) -> Rfc2217Port:
        left = Deadline(timeout)
        port = Rfc2217Port(self._endpoint.open(timeout), self.url)
        with self._closing_on_failure(port):
            port.begin(self._requests, left())
        return port

    async def aopen(self, timeout: float) -> Rfc2217Port:
        left = Deadline(timeout)
        port = Rfc2217Port(await self._endpoint.aopen(timeout), self.url)
        with self._closing_on_failure(port):
            await port.abegin(self._requests, left())
        return port

    def dispose(self) -> None:
        """Do nothing: a network address holds nothing on this host."""

    @property
    def _endpoint(self) -> SocketAddress:
        return SocketAddress(self.url, self.host, self.port)

    @property
    def _requests(self) -> list[Request]:
        line: list[Request] = [SetBaud(self.baud), SetDataBits(None), SetParity(None), SetStopBits(None)]
        return [*line, *_controls(self.dtr, self.rts, None)]

    @contextmanager
    def _closing_on_failure(self, port: Rfc2217Port) -> Iterator[None]:
        """Close `port` if the negotiation in the block fails. A `ProtocolError` becomes a `TransportError`."""
        try:
            yield
        except ProtocolError as error:
            port.close()
            hint = "It may be a raw line: open it as socket:// instead"
            raise TransportError(error.what, where=self.url, hint=hint) from error
        except BaseException:
            port.close()
            raise


class Rfc2217Port(FramedPort):
    """A serial port behind a server. `stream` is the connection to the server. Call `begin` first."""

    def __init__(self, stream: SocketPort, where: str) -> None:
        self._client = Rfc2217Client(where)
        super().__init__(stream, self._client, where)

    def begin(self, requests: Sequence[Request], timeout: float) -> None:
        """Negotiate RFC 2217 with the server, and have it execute `requests`, within `timeout` seconds."""
        run(self._client.open(requests, timeout), self._connection, timeout=timeout)

    async def abegin(self, requests: Sequence[Request], timeout: float) -> None:
        """As `begin`."""
        await arun(self._client.open(requests, timeout), self._connection, timeout=timeout)

    @property
    def bytes_per_second(self) -> float | None:
        if self._client.baud is None:
            return None
        return self.settings.bytes_per_second

    @property
    def settings(self) -> LineSettings:
        """The settings that the server last reported, and defaults for those that it never reported."""
        client, default = self._client, LineSettings()
        return LineSettings(
            client.baud or default.baud,
            client.data_bits or default.data_bits,
            client.parity or default.parity,
            client.stop_bits or default.stop_bits,
        )

    def write(self, data: bytes, timeout: float) -> None:
        with self._within(timeout, "took no byte") as left:
            while self._client.suspended:
                self._connection.read(left())
            self._connection.write_text(self._client.encode(data), timeout)

    def configure(self, settings: LineSettings, timeout: float) -> None:
        run(self._client.insist(_settings(settings), timeout), self._connection, timeout=timeout)

    def assign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        run(self._client.insist(_controls(dtr, rts, sending_break), timeout), self._connection, timeout=timeout)

    def purge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        if received or unsent:
            run(self._client.purge(Purge(received, unsent), timeout), self._connection, timeout=timeout)

    def modem(self, timeout: float) -> ModemLines:
        return _lines(run(self._client.modem(timeout), self._connection, timeout=timeout))

    async def awrite(self, data: bytes, timeout: float) -> None:
        with self._within(timeout, "took no byte") as left:
            while self._client.suspended:
                await self._connection.aread(left())
            await self._connection.awrite_text(self._client.encode(data), timeout)

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        await arun(self._client.insist(_settings(settings), timeout), self._connection, timeout=timeout)

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        await arun(self._client.insist(_controls(dtr, rts, sending_break), timeout), self._connection, timeout=timeout)

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        if received or unsent:
            await arun(self._client.purge(Purge(received, unsent), timeout), self._connection, timeout=timeout)

    async def amodem(self, timeout: float) -> ModemLines:
        return _lines(await arun(self._client.modem(timeout), self._connection, timeout=timeout))


def _settings(settings: LineSettings) -> list[Request]:
    return [
        SetBaud(settings.baud),
        SetDataBits(settings.data_bits),
        SetParity(settings.parity),
        SetStopBits(settings.stop_bits),
    ]


def _controls(dtr: bool | None, rts: bool | None, sending_break: bool | None) -> list[Request]:
    every: list[SetDtr | SetRts | SetBreak] = [SetDtr(dtr), SetRts(rts), SetBreak(sending_break)]
    return [control for control in every if control.on is not None]


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
