"""A buffer of received bytes that no conversation has parsed yet.

An `Inbox` lives as long as its line, so the next conversation finds the bytes that the last one left. `some`,
`exactly` and `until` are conversations: call them with `yield from`. They wait only for bytes that are not in the
buffer yet, and let the `TransportTimeout` of that wait pass.
"""

from __future__ import annotations

from fastflight.errors import ProtocolError
from fastflight.protocol.conversation import Conversation, Receive

# The most output before an expected marker: the program's own prints, a banner, a traceback. A board that sends more
# than this without the marker is not going to answer.
MAX_SKIPPED_BYTES = 1 << 20


class Inbox:
    """A queue of received bytes."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, mark: bytes) -> bool:
        return mark in self._data

    def clear(self) -> None:
        """Drop everything received so far."""
        self._data.clear()

    def take(self) -> bytes:
        """Remove and return everything received so far, without waiting. May be empty."""
        data = bytes(self._data)
        self._data.clear()
        return data

    def put_back(self, data: bytes) -> None:
        """Put `data` back at the front: this conversation has read it, but does not use it."""
        self._data[:0] = data

    def some(self, within: float) -> Conversation[bytes]:
        """Return at least one byte: all bytes in the buffer, or else the next that arrive within `within` seconds."""
        if not self._data:
            self._data += yield Receive(within)
        return self.take()

    def exactly(self, count: int, within: float) -> Conversation[bytes]:
        """Return `count` bytes. `within` is the longest silence, in seconds, while bytes are missing."""
        while len(self._data) < count:
            self._data += yield Receive(within)
        data = bytes(memoryview(self._data)[:count])
        del self._data[:count]
        return data

    def until(self, marker: bytes, within: float, limit: int = MAX_SKIPPED_BYTES) -> Conversation[bytes]:
        """Return everything before `marker`, and remove both. `within` is the longest silence, in seconds.

        Raises `ProtocolError` if more than `limit` bytes arrive without the marker.
        """
        searched = 0
        while (at := self._data.find(marker, max(0, searched - len(marker) + 1))) < 0:
            searched = len(self._data)
            if searched > limit:
                raise ProtocolError(
                    f"the board sent {searched} bytes, and {marker!r} was not among them",
                    hint="It may be printing without end: interrupt it, or reset it",
                )
            self._data += yield Receive(within)
        data = bytes(memoryview(self._data)[:at])
        del self._data[: at + len(marker)]
        return data
