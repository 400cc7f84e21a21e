"""Controls an open pyserial port: line settings, control lines, modem lines, purge.

All calls block while the driver works, for a USB adapter usually a millisecond or two. Failures are `TransportError`;
`where` names the port. A port without modem lines, such as a pseudo-terminal, can neither set DTR and RTS nor read the
modem lines.
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


# The errors of a system for an operation that this kind of port does not support.
UNKNOWN_REQUEST = frozenset({errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP})

# What pyserial raises: OSError from the system, ValueError for values that it does not support, termios' own error from
# setting a line, TypeError if the port is closed during a call, OverflowError for a speed beyond 31 bits.
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
        """Apply all of `settings`. If that fails, restore the old settings and raise `TransportError`."""
        self._check()
        # A speed of 0 makes a terminal hang up.
        if settings.baud < 1:
            raise TransportError(f"a line cannot run at {settings.baud} baud", where=self._where)
        before = self.settings
        try:
            self._apply(settings)
        except FAILURES as error:
            with contextlib.suppress(*FAILURES):
                self._apply(before)
            raise self._failed(f"cannot drive the line as {_format_settings(settings)}", error) from error

    def assign(self, *, dtr: bool | None, rts: bool | None, sending_break: bool | None) -> None:
        """Set the lines that are not None. RTS is set before DTR: see `transport.serial`."""
        self._check()
        if rts is not None:
            self._set("RTS", lambda: setattr(self._port, "rts", rts))
        if dtr is not None:
            self._set("DTR", lambda: setattr(self._port, "dtr", dtr))
        if sending_break is not None:
            self._set("break", lambda: setattr(self._port, "break_condition", sending_break))

    def purge(self, *, received: bool, unsent: bool) -> None:
        """Discard the bytes in the system's buffers: received ones, unsent ones."""
        self._check()
        try:
            if received:
                self._port.reset_input_buffer()
            if unsent:
                self._port.reset_output_buffer()
        except FAILURES as error:
            raise self._failed("cannot purge the port", error) from error

    def modem(self) -> ModemLines:
        """Return the lines that the other side drives. `TransportError` if the port has none."""
        port = self._port
        try:
            return ModemLines(cts=port.cts, dsr=port.dsr, ri=port.ri, cd=port.cd)
        except FAILURES as error:
            if getattr(error, "errno", None) in UNKNOWN_REQUEST:
                raise TransportError("the port has no modem lines", where=self._where) from error
            raise self._failed("cannot read the modem lines", error) from error

    def _apply(self, settings: LineSettings) -> None:
        # Setting any attribute reconfigures the driver, so set only those that change.
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
                    hint="It is not a real serial line: reset the board with a command instead",
                ) from error
            raise self._failed(f"cannot set {line}", error) from error

    def _check(self) -> None:
        # pyserial accepts settings for a closed port, and keeps them until it is opened.
        if not self._port.is_open:
            raise TransportClosed("the line was closed on this side", where=self._where)

    def _failed(self, what: str, error: Exception) -> TransportError:
        self._check()
        return TransportError(f"{what} ({error})", where=self._where, hint="Use settings that the adapter supports")


def _format_settings(settings: LineSettings) -> str:
    return f"{settings.baud} baud, {settings.data_bits}{settings.parity}{settings.stop_bits:g}"
