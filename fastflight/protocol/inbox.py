"""Bytes that are received and not parsed yet.

One `Inbox` lives as long as its line, so bytes that one conversation leaves are there for the next. Its methods are
conversations, to be used with `yield from`. Each waits only for bytes that are missing.
"""

from __future__ import annotations

from fastflight.errors import ProtocolError
from fastflight.protocol.conversation import Conversation, Receive

# Output that may stand before an awaited marker: the program's own prints, a banner, a traceback. A board that sends
# more than this without ever answering is not going to answer.
MAX_SKIPPED_BYTES = 1 << 20


class Inbox:
    """A queue of received bytes."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def clear(self) -> None:
        """Forget everything received so far."""
        self._data.clear()

    def take(self) -> bytes:
        """Everything received so far, without waiting."""
        data = bytes(self._data)
        self._data.clear()
        return data

    def put_back(self, data: bytes) -> None:
        """Put bytes that belong to another conversation back at the front."""
        self._data[:0] = data

    def some(self, within: float) -> Conversation[bytes]:
        """At least one byte: all bytes that are there, or the next ones that arrive within that time."""
        if not self._data:
            self._data += yield Receive(within)
        return self.take()

    def exactly(self, count: int, within: float) -> Conversation[bytes]:
        """`count` bytes, with at most `within` seconds of silence between any two."""
        while len(self._data) < count:
            self._data += yield Receive(within)
        data = bytes(memoryview(self._data)[:count])
        del self._data[:count]
        return data

    def until(self, marker: bytes, within: float, limit: int = MAX_SKIPPED_BYTES) -> Conversation[bytes]:
        """Everything before `marker`; the marker is removed. `ProtocolError` if `limit` bytes come without it."""
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
