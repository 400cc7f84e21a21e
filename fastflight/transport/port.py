"""What a transport is: an open byte stream to a device, usable from a thread or from an event loop.

A `Port` is open. Its owner uses either its blocking methods or its coroutines, never both at once, and may change
between them whenever no call is running: bytes that arrived meanwhile are given to whoever reads next. Every wait has
a deadline. All failures are `TransportClosed`, `TransportTimeout` or `TransportError`.
"""

from __future__ import annotations

from typing import Protocol

# One read: large enough that an unlimited line is not bound by system calls, small enough to be a cheap buffer.
READ_BYTES = 256 * 1024


class Port(Protocol):
    """An open byte stream."""

    def read(self, timeout: float) -> bytes:
        """At least one byte, or `TransportTimeout` after `timeout` seconds."""

    def write(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` to the line. `timeout` bounds the time without progress."""

    def close(self) -> None:
        """Give the line back; safe to call twice and while another thread waits in `read`."""

    async def aread(self, timeout: float) -> bytes:
        """As `read`."""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """As `write`."""

    async def aclose(self) -> None:
        """As `close`."""


class Address(Protocol):
    """Where a device is. Holds what must outlive a single opening (the simulated board's files)."""

    @property
    def url(self) -> str:
        """As the user wrote it."""

    def open(self, timeout: float) -> Port:
        """Open the line. Raises `TransportError` when it cannot be opened, saying what to do."""

    def dispose(self) -> None:
        """Give back what the address itself holds. No port of it may be open."""
