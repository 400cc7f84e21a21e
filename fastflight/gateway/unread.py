"""Clients for whom something waits and who take nothing of it, not a byte: as long as they stay it is held for them."""

from __future__ import annotations

from typing import Generic, TypeVar

from fastflight.transport.progress import Taken

Client = TypeVar("Client")

# An answer that nobody reads holds its device and its memory for so long: as by Flight.
STALL_SECONDS = 120.0
# What waits in the process, and what the system says was taken of it. While a line is thin the first does not change.
Waiting = tuple[int, Taken | None]


class Unread(Generic[Client]):
    """Looks at clients now and then."""

    def __init__(self) -> None:
        # What they had taken, and by when.
        self._known: dict[Client, tuple[Waiting, float]] = {}

    def is_stalled(self, client: Client, waiting: Waiting | None, now: float) -> bool:
        """Whether it has taken nothing of what waits for it (None: nothing does) for too long. `now` is a clock's."""
        if waiting is None:
            self.forget(client)
            return False
        known = self._known.get(client)
        if known is None or known[0] != waiting:
            known = self._known[client] = waiting, now
        return now - known[1] >= STALL_SECONDS

    def forget(self, client: Client) -> None:
        """It has left, or nothing waits for it."""
        self._known.pop(client, None)
