"""Control of an open pyserial port: line settings, control lines, modem lines, purge.

All calls block for as long as the driver takes, for a USB adapter usually a millisecond or two. Failures are
`TransportError`; `where` names the port. A port without modem lines, such as a pseudo-terminal, refuses to set DTR and
RTS and to read the modem lines.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import serial

from fastflight.errors import TransportClosed, TransportError
from fastflight.transport.port import LineSettings, ModemLines

try:
    from termios import error as TerminalError
except ImportError:  # not a POSIX system, where pyserial raises OSError only

    class TerminalError(Exception):  # type: ignore[no-redef]
        """Never raised here."""


# What a system answers to a request that this kind of port does not know.
UNKNOWN_REQUEST = frozenset({errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP})

# What pyserial raises: OSError from the system, ValueError for values that it does not know, termios' own error from
# setting a line, TypeError when the port is closed during a call, OverflowError for a speed beyond 31 bits.
FAILURES = (OSError, ValueError, TerminalError, TypeError, OverflowError)


class Lines:
    """The settings and lines of an open `port`."""

    def __init__(self, port: serial.Serial, where: str) -> None:
        self._port = port
        self._where = where

    @property
    def settings(self) -> LineSettings:
        port = self._port
        return LineSettings(port.baudrate, port.bytesize, port.parity, port.stopbits)  # type: ignore[arg-type]

    def configure(self, settings: LineSettings) -> None:
        """Apply all of `settings`; on `TransportError` the port keeps the settings that it had."""
        self._check()
        # A speed of 0 is how a terminal is told to hang up.
        if settings.baud < 1:
            raise TransportError(f"a line cannot run at {settings.baud} baud", where=self._where)
        before = self.settings
        try:
            self._apply(settings)
        except FAILURES as error:
            with contextlib.suppress(*FAILURES):
                self._apply(before)
            raise self._failed(f"cannot drive the line as {_words(settings)}", error) from error

    def assign(self, *, dtr: bool | None, rts: bool | None, sending_break: bool | None) -> None:
        """Set the lines that are not None. RTS goes before DTR: see `SerialAddress`."""
        self._check()
        if rts is not None:
            self._set("RTS", lambda: setattr(self._port, "rts", rts))
        if dtr is not None:
            self._set("DTR", lambda: setattr(self._port, "dtr", dtr))
        if sending_break is not None:
            self._set("break", lambda: setattr(self._port, "break_condition", sending_break))

    def purge(self, *, received: bool, unsent: bool) -> None:
        """Throw away what waits in the system's buffers."""
        self._check()
        try:
            if received:
                self._port.reset_input_buffer()
            if unsent:
                self._port.reset_output_buffer()
        except FAILURES as error:
            raise self._failed("cannot purge the port", error) from error

    def modem(self) -> ModemLines:
        """The lines that the other side drives. `TransportError` where the port has none."""
        port = self._port
        try:
            return ModemLines(cts=port.cts, dsr=port.dsr, ri=port.ri, cd=port.cd)
        except FAILURES as error:
            if getattr(error, "errno", None) in UNKNOWN_REQUEST:
                raise TransportError("the port has no modem lines", where=self._where) from error
            raise self._failed("cannot read the modem lines", error) from error

    def _apply(self, settings: LineSettings) -> None:
        # Setting any of these asks the driver anew, so only what changes.
        port = self._port
        for name, value in (
            ("baudrate", settings.baud),
            ("bytesize", settings.data_bits),
            ("parity", settings.parity),
            ("stopbits", settings.stop_bits),
        ):
            if getattr(port, name) != value:
                setattr(port, name, value)

    def _set(self, line: str, act: Callable[[], None]) -> None:
        try:
            act()
        except FAILURES as error:
            if getattr(error, "errno", None) in UNKNOWN_REQUEST:
                raise TransportError(
                    f"the port has no {line} to set",
                    where=self._where,
                    hint="It is not a real serial line: reset the board by what it is told instead",
                ) from error
            raise self._failed(f"cannot set {line}", error) from error

    def _check(self) -> None:
        # pyserial keeps settings for a port that is not open, for when it is.
        if not self._port.is_open:
            raise TransportClosed("the line was closed on this side", where=self._where)

    def _failed(self, what: str, error: Exception) -> TransportError:
        self._check()
        return TransportError(f"{what} ({error})", where=self._where, hint="Ask for what the adapter can do")


def _words(settings: LineSettings) -> str:
    return f"{settings.baud} baud, {settings.data_bits}{settings.parity}{settings.stop_bits:g}"
