"""`fastflight ports`: the serial ports of this computer, and what is plugged into them."""

from __future__ import annotations

from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.options import AsJson
from fastflight.transport.identity import system_ports


def ports(json: AsJson = False) -> None:
    """List the serial ports of this computer. No port is opened.

    The USB serial number can stand for the port: serial:?serial_number=NUMBER finds it wherever it is plugged in.
    """
    with report_errors():
        found = sorted(system_ports(), key=lambda port: port.device)
        rows = [
            {
                "port": port.device,
                "serial_number": port.serial_number,
                "usb": None if port.vid is None else f"{port.vid:04x}:{port.pid:04x}",
                "location": port.location,
                "description": None if port.description == "n/a" else port.description,
            }
            for port in found
        ]
        if json:
            screen.as_json(rows)
        elif rows:
            headings = ("port", "serial number", "usb", "location", "description")
            screen.table(headings, [tuple(value or "-" for value in row.values()) for row in rows])
        else:
            screen.complain("no serial port found. Is the board plugged in with a cable that carries data?")
