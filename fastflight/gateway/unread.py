"""Detects clients that have stopped reading what waits for them."""

from __future__ import annotations

from typing import Generic, TypeVar

from fastflight.transport.tcp_info import SendState

Client = TypeVar("Client")

# For so long an answer that nobody reads may keep its device and its memory. Flight has the same limit.
STALL_SECONDS = 120.0
# The bytes that wait in the process, and the state of the connection: on a thin line only the second one changes.
Waiting = tuple[int, SendState | None]


class Unread(Generic[Client]):
    """Compares what waits for each client with what waited before."""

    def __init__(self) -> None:
        # What waited for each client, and since when that is unchanged.
        self._known: dict[Client, tuple[Waiting, float]] = {}

    def is_stalled(self, client: Client, waiting: Waiting | None, now: float) -> bool:
        """Whether it has taken nothing of what waits for it (None: nothing does) for too long, at the time `now`."""
        if waiting is None:
            self.forget(client)
            return False
        known = self._known.get(client)
        if known is None or known[0] != waiting:
            known = self._known[client] = waiting, now
        return now - known[1] >= STALL_SECONDS

    def forget(self, client: Client) -> None:
        """The client has left, or nothing waits for it."""
        self._known.pop(client, None)
