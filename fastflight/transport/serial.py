"""`serial:///dev/ttyACM0?baud=115200`, or `serial:?serial_number=E66141`: a serial port, by name or by identity.

pyserial opens the port. Opening does not reset a board: POSIX systems assert DTR and RTS when a port is opened, and
pyserial leaves them so. USB consoles of boards send only while DTR is asserted, and the auto-reset circuit of ESP
boards does nothing while both lines are the same. `dtr` and `rts` change the lines, RTS first: DTR asserted without RTS
resets no board; the other order would pulse the reset of an ESP board.

`SerialAddress.aopen` returns the port that the rest of the package uses. `aopen_streams` opens a port in the same way
and returns pyserial-asyncio's streams on it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import serial
import serial_asyncio

from fastflight.concurrency import off_loop
from fastflight.errors import TransportError
from fastflight.transport import url_parts
from fastflight.transport.identity import Identity, Ports, format_ports, identify, system_ports
from fastflight.transport.pacing import DEFAULT, LIMITS, Pacing
from fastflight.transport.port import LineSettings, StatelessAddress
from fastflight.transport.serial_lines import FAILURES
from fastflight.transport.serial_port import SerialPort

DEFAULT_BAUD = LineSettings().baud
# The options of a URL, all of which are public.
OPTIONS = SHOWN = ("baud", "dtr", "rts", "serial_number", "location", *LIMITS)


@dataclass(frozen=True, slots=True)
class SerialAddress(StatelessAddress):
    """A serial port, given by its system `name`, or by the identity `wanted`.

    `dtr` and `rts` are the states of the lines after opening; None leaves a line as opening sets it. `ports` returns
    the serial ports of this computer.
    """

    url: str
    name: str
    baud: int = DEFAULT_BAUD
    dtr: bool | None = None
    rts: bool | None = None
    wanted: Identity | None = None
    pacing: Pacing = DEFAULT
    ports: Ports = field(default=system_ports, compare=False, repr=False)

    async def aopen(self, timeout: float) -> SerialPort:
        port = await off_loop(self.open_pyserial, discard=serial.Serial.close)
        try:
            return SerialPort(port, self.url, self.pacing)
        except FAILURES as error:  # the port disappeared just now
            port.close()
            raise self._open_error(error) from error

    async def aopen_streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the port and return pyserial-asyncio's streams on it. Closing the writer closes the port."""
        port = await off_loop(self.open_pyserial, discard=serial.Serial.close)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await serial_asyncio.connection_for_serial(loop, lambda: protocol, port)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def open_pyserial(self) -> serial.Serial:
        """Open the port with the settings of this address."""
        port = serial.Serial()
        port.port = self._present_name()
        port.baudrate = self.baud
        port.exclusive = True
        if os.name == "posix":
            # This sets VMIN = 1: a read without bytes raises. With pyserial's 0 it looks like an unplugged port.
            port.inter_byte_timeout = 0
        if self.rts is not None:
            port.rts = self.rts
        # On Windows pyserial sets both lines at once. Elsewhere it sets DTR first, so DTR is set after opening.
        if self.dtr is not None and os.name == "nt":
            port.dtr = self.dtr
        try:
            port.open()
        except FAILURES as error:
            raise self._open_error(error) from error
        if self.dtr is not None and os.name != "nt":
            try:
                port.dtr = self.dtr
            except OSError as error:
                # A port without these lines resets no board. pyserial ignores the same error while it opens.
                if error.errno not in (errno.ENOTTY, errno.EINVAL):
                    port.close()
                    raise TransportError("cannot set DTR of the serial port", where=self.url) from error
        return port

    def identified(self) -> SerialAddress:
        """Return the address by what identifies its port when it is plugged in again, perhaps under another name.

        Call it while the port is there. A port without an identity, such as one without USB, keeps its name.
        """
        wanted = self.wanted or identify(self.name, self.ports())
        return self if wanted == self.wanted else replace(self, wanted=wanted)

    def missing(self) -> str:
        """Return a message that the port is not there, with the ports that are; empty text if it is there."""
        name = self._find()
        if os.name == "posix":
            found = name is not None and os.path.exists(name)
        else:  # no device files
            found = name is not None and name.upper() in (port.device.upper() for port in self.ports())
        if found:
            return ""
        what = f"no single port here has {self.wanted}" if self.wanted is not None else f"there is no port {self.name}"
        return f"{what}. Ports found here: {format_ports(self.ports())}"

    def _find(self) -> str | None:
        """Return the present name of the port. None if no port here, or more than one, has its identity.

        A socket alone does not identify a board: if it is empty, the port is the one that the URL names.
        """
        if self.wanted is None:
            return self.name
        named = self.name if self.wanted.serial_number is None else ""
        return self.wanted.find(self.ports()) or named or None

    def _present_name(self) -> str:
        found = self._find()
        if found is None:
            other = " If another board is meant now, restart the server, or remove and add the device." * bool(
                self.name
            )
            raise TransportError(
                f"no single port here has {self.wanted}",
                where=self.url,
                hint=f"Check the cable.{other} Ports found here: {format_ports(self.ports())}",
            )
        return found

    def _open_error(self, error: Exception) -> TransportError:
        # pyserial's SerialException is an OSError, with the errno of the system if there was one.
        code = getattr(error, "errno", None)
        return TransportError("cannot open the serial port", where=self.url, hint=self._advice(code))

    def _advice(self, code: int | None) -> str:
        if code == errno.EACCES:
            return "You may not use it: add yourself to the group that owns it (often dialout or uucp) and log in again"
        if code in (errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK):
            return "Another program has it open: close that first"
        return f"Check its name and the cable. Ports found here: {format_ports(self.ports())}"


def parse(url: str, rest: str) -> SerialAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    path = url_parts.path(rest.removeprefix("//"))
    options = dict(url_parts.options(url, rest, OPTIONS))
    wanted = Identity(options.get("serial_number"), options.get("location"))
    identified = wanted != Identity()
    if path.strip("/") and identified:
        raise url_parts.bad(url, "the port is named twice: by its path, and by its serial number or location")
    if "" in (wanted.serial_number, wanted.location) or not (path.strip("/") or identified):
        raise url_parts.bad(url, "the port's name is missing")
    # On Windows the name has no slash of its own: serial:///COM7.
    name = path.lstrip("/") if url_parts.COM_PORT.fullmatch(path.lstrip("/")) else path
    return SerialAddress(
        url,
        "" if identified else name,
        url_parts.baud(url, options) or DEFAULT_BAUD,
        url_parts.flag(url, "dtr", options.get("dtr")),
        url_parts.flag(url, "rts", options.get("rts")),
        wanted if identified else None,
        _pacing(url, options),
    )


def _pacing(url: str, options: Mapping[str, str]) -> Pacing:
    sizes = {name: url_parts.between(url, name, options[name], *LIMITS[name]) for name in LIMITS if name in options}
    return replace(DEFAULT, **sizes)
