"""Ports whose bytes are wrapped in a protocol, such as RFC 2217 or WebREPL, on a connection to its server.

The protocol's client (`Framing`) gets all received bytes, and its answers are sent at once. Each write is encoded and
passed to the transport whole, so that nothing comes between its bytes. One caller may read, one write and one control
the line at the same time.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from fastflight.errors import TransportError
from fastflight.protocol.conversation import Conversation
from fastflight.transport.run import arun
from fastflight.transport.socket import SocketPort

T = TypeVar("T")


class Framing(Protocol):
    """The client's side of a protocol, without I/O."""

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""

    @property
    def unread(self) -> bool:
        """Whether `read` returns or raises something."""

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent to the server now."""

    def encode(self, data: bytes) -> bytes:
        """Return `data` for the line in the form to send to the server."""

    def feed(self, data: bytes) -> None:
        """Process bytes from the server."""

    def read(self) -> bytes:
        """Remove and return the line's data received so far; may be empty. It may raise that there will be no more."""


class FramedPort(SocketPort):
    """A port that reads and writes through `client`."""

    def __init__(self, client: Framing, where: str) -> None:
        super().__init__(where)
        self._framing = client
        # How often the client was fed.
        self._fed = 0
        # How many questions to the server wait for an answer. It may come behind bytes that nobody reads, so reading is
        # not paused meanwhile.
        self._conversations = 0

    async def _converse(self, conversation: Conversation[T], timeout: float) -> T:
        """Run a conversation of the client. After `timeout` seconds, it gets `TransportTimeout`."""
        return await self.portal.acall(self._run(conversation, timeout))

    async def _run(self, conversation: Conversation[T], timeout: float) -> T:
        self._conversations += 1
        try:
            with self._lock:
                self._resume_reading()
            return await arun(conversation, _ToServer(self), timeout=timeout)
        finally:
            self._conversations -= 1

    def _encode(self, data: bytes) -> bytes:
        return self._framing.encode(data)

    def _decode(self, data: bytes) -> bytes:
        with self._lock:
            self._store(data)
            return self._pop() if self._has_unread else b""

    def _store(self, data: bytes) -> None:
        try:
            self._framing.feed(data)
        except TransportError as error:
            self._fail(error)
            return
        self._fed += 1
        if self._framing.unsent:
            self._transport.write(self._framing.take())
        if not self._framing.unread and not self._reading_paused:
            # A server that sends commands without end must not block the loop's other tasks.
            self._reading_paused = True
            self._transport.pause_reading()
            self._loop.call_soon(self._resume_reading)

    @property
    def _has_unread(self) -> bool:
        return self._framing.unread

    @property
    def _may_pause(self) -> bool:
        return self._framing.unread and not self._conversations

    def _pop(self) -> bytes:
        return self._framing.read()


class _ToServer:
    """What a conversation of the client sends to and receives from. The client itself gets the bytes."""

    def __init__(self, port: FramedPort) -> None:
        self._port = port
        self._seen = port._fed

    async def awrite(self, data: bytes, timeout: float) -> None:
        self._port._check()
        self._port._transport.write(data)
        await self._port._wait(self._port._is_sent, "took no byte", timeout)

    async def adrain(self, timeout: float) -> None:
        """Do nothing: a write waits until the system has all bytes."""

    async def aread(self, timeout: float) -> bytes:
        """Return as soon as the client was fed since the last call. The result is always empty."""
        port = self._port
        await port._wait(lambda: port._fed != self._seen or port._failure is not None, "sent nothing", timeout)
        if port._fed == self._seen:
            port._check()
        self._seen = port._fed
        return b""
