"""Byte streams to devices, and the two runners that execute conversations over them (thread, event loop)."""

from fastflight.transport.loop_port import Port
from fastflight.transport.port import Address, LineSettings, ModemLines, SerialControl
from fastflight.transport.run import arun, astream, run, stream
from fastflight.transport.url import parse_url

__all__ = [
    "Address",
    "LineSettings",
    "ModemLines",
    "Port",
    "SerialControl",
    "arun",
    "astream",
    "parse_url",
    "run",
    "stream",
]
