"""What a serial port keeps when it is plugged in again, perhaps under another system name: its USB serial number, or
the USB socket that it is in.

Serial numbers are the better of the two, since a board takes its own along; some makers give all boards the same one.
A device with several ports (a probe and its target, a board with two consoles) has one serial number: its ports are
told apart by their interface, the part of the location after the colon.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from serial.tools import list_ports


class FoundPort(Protocol):
    """A port of this computer, as `serial.tools.list_ports` describes it."""

    device: str
    description: str
    hwid: str
    serial_number: str | None
    location: str | None


Ports = Callable[[], Iterable[FoundPort]]


# A hub that is pulled takes its ports along one after the other.
LOOKS = 5


def system_ports() -> list[FoundPort]:
    """The serial ports that the system has now; none while they change all the time."""
    for _ in range(LOOKS):
        # pyserial asks for a port's files one by one: one that is pulled meanwhile has no number where it had one.
        with contextlib.suppress(TypeError, ValueError, OSError):
            return list(list_ports.comports())
    return []


@dataclass(frozen=True, slots=True)
class Identity:
    """A serial number, a location (`1-1.2`, `1-1.2:1.0` with its interface), or both. Never neither."""

    serial_number: str | None = None
    location: str | None = None

    def __str__(self) -> str:
        parts = (("serial_number", self.serial_number), ("location", self.location))
        return " and ".join(f"{name}={value}" for name, value in parts if value)

    def find(self, ports: Iterable[FoundPort]) -> str | None:
        """The system name that the port has now; None when it is not there, or when several fit.

        With both, the serial number decides, and the location only between ports that have it.
        """
        fitting = [port for port in ports if self._fits(port)]
        if len(fitting) > 1:
            fitting = [port for port in fitting if port.location == self.location]
        return fitting[0].device if len(fitting) == 1 else None

    def _fits(self, port: FoundPort) -> bool:
        socket, interface = _parts(self.location)
        its_socket, its_interface = _parts(port.location)
        if interface and interface != its_interface:
            return False
        if self.serial_number is not None:
            return port.serial_number == self.serial_number
        return socket == its_socket


def identify(name: str, ports: Iterable[FoundPort]) -> Identity | None:
    """The identity of the port with the system name `name`; None when it has none, as a port that is not USB.

    A serial number that a board in another socket has as well is the maker's, and says nothing.
    """
    found = list(ports)
    real = os.path.realpath(name)
    port = next((port for port in found if port.device == name or os.path.realpath(port.device) == real), None)
    if port is None:
        return None
    namesakes = {_parts(other.location)[0] for other in found if other.serial_number == port.serial_number}
    number = port.serial_number if len(namesakes) == 1 else None
    if not number and not port.location:
        return None
    return Identity(number or None, port.location or None)


def described(ports: Iterable[FoundPort]) -> str:
    """The ports with their identities, for a hint."""
    lines = []
    for port in sorted(ports, key=lambda port: port.device):
        known = [f"{key}={value}" for key in ("serial_number", "location") if (value := getattr(port, key))]
        lines.append(f"{port.device} ({', '.join(known)})" if known else port.device)
    return ", ".join(lines) or "none"


def _parts(location: str | None) -> tuple[str, str]:
    """The socket, and the interface of the device in it."""
    socket, _, interface = (location or "").partition(":")
    return socket, interface
