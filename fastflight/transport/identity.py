"""Finds a serial port again after it was unplugged and plugged in, perhaps under another system name.

A port is identified by its USB serial number, or by the USB socket that it is in. The serial number is better, since it
belongs to the board; but some makers give all boards the same number. A device with several ports (a probe and its
target, a board with two consoles) has one serial number: its ports differ in their interface, the part of the location
after the colon.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class FoundPort(Protocol):
    """A port of this computer, as `serial.tools.list_ports` describes it."""

    device: str
    description: str
    hwid: str
    serial_number: str | None
    location: str | None
    # The numbers of the maker and the product of a USB device; None for a port without USB.
    vid: int | None
    pid: int | None


Ports = Callable[[], Iterable[FoundPort]]


# A hub that is unplugged removes its ports one after the other, and each removal may break a listing.
LIST_ATTEMPTS = 5


def system_ports() -> list[FoundPort]:
    """Return the serial ports that the system has now. Empty if they change during every attempt to list them."""
    # Not at the top: a board that is named by its URL needs no listing of ports.
    from serial.tools import list_ports

    for _ in range(LIST_ATTEMPTS):
        # pyserial reads a port's files one by one, and fails if the port is unplugged meanwhile.
        with contextlib.suppress(TypeError, ValueError, OSError):
            return list(list_ports.comports())
    return []


@dataclass(frozen=True, slots=True)
class Identity:
    """A serial number, a location (`1-1.2`, or `1-1.2:1.0` with its interface), or both. At least one is set."""

    serial_number: str | None = None
    location: str | None = None

    def __str__(self) -> str:
        parts = (("serial_number", self.serial_number), ("location", self.location))
        return " and ".join(f"{name}={value}" for name, value in parts if value)

    def find(self, ports: Iterable[FoundPort]) -> str | None:
        """Return the current system name of the port. None if no port or several ports match.

        If both are set, the serial number decides, and the location only among several ports with that number.
        """
        matches = [port for port in ports if self._matches(port)]
        if len(matches) > 1:
            matches = [port for port in matches if port.location == self.location]
        return matches[0].device if len(matches) == 1 else None

    def _matches(self, port: FoundPort) -> bool:
        socket, interface = _parts(self.location)
        port_socket, port_interface = _parts(port.location)
        if interface and interface != port_interface:
            return False
        if self.serial_number is not None:
            return port.serial_number == self.serial_number
        return socket == port_socket


def identify(name: str, ports: Iterable[FoundPort]) -> Identity | None:
    """Return the identity of the port with the system name `name`. None if it has none, such as a port without USB.

    A serial number that a board in another socket also has is not unique, and is ignored.
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


def format_ports(ports: Iterable[FoundPort]) -> str:
    """Return the names of the ports with their identities, for a hint."""
    lines = []
    for port in sorted(ports, key=lambda port: port.device):
        known = [f"{key}={value}" for key in ("serial_number", "location") if (value := getattr(port, key))]
        lines.append(f"{port.device} ({', '.join(known)})" if known else port.device)
    return ", ".join(lines) or "none"


def _parts(location: str | None) -> tuple[str, str]:
    """Return the socket, and the interface of the device in it."""
    socket, _, interface = (location or "").partition(":")
    return socket, interface
