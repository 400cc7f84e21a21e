"""Shares a number of places fairly between names.

A name gets free places up to its own limit. When all places are taken, a name with fewer places gets one
of the name that has most. So a few names cannot keep out the others. Clients without a name (None) count as one name,
without a limit of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from fastflight.errors import ResourceExhausted

T = TypeVar("T", bound=Hashable)


class Quota(Generic[T]):
    """The holders of the places, by name. Belongs to one event loop."""

    def __init__(
        self, most: int, most_of_one: int, what: str, *, retry_seconds: float, hint: str, newest: bool = False
    ) -> None:
        """`what` names the places in errors: "relayed streams". One may be free after `retry_seconds`.

        Of the name that has most, the oldest holder loses its place, or the `newest`.
        """
        self._most = most
        self._most_of_one = most_of_one
        self._what = what
        self._retry_seconds = retry_seconds
        self._hint = hint
        self._newest = newest
        # By name, its holders, the oldest first. Names without holders are removed.
        self._of: dict[str | None, dict[T, None]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def take(self, name: str | None, who: T) -> T | None:
        """Give a place to the holder `who`, which belongs to `name`. Return the holder that lost its place, if any.

        Raises `ResourceExhausted` if `name` has reached its own limit, or if all places are taken and no other name has
        more of them than `name` would then have.
        """
        own = len(self._of.get(name, ()))
        if name is not None and own >= self._most_of_one:
            raise self._full(f"{self._most_of_one} {self._what} of {name}", "identity", self._most_of_one)
        evicted = None
        if self._taken >= self._most:
            other, largest = max(self._of.items(), key=lambda holders: len(holders[1]))
            if len(largest) <= own + 1:
                raise self._full(f"{self._most} {self._what}", "server", self._most)
            evicted = next(reversed(largest)) if self._newest else next(iter(largest))
            self.leave(other, evicted)
        self._of.setdefault(name, {})[who] = None
        self._taken += 1
        return evicted

    def leave(self, name: str | None, who: T) -> None:
        """Remove a holder; do nothing if it was removed before."""
        of_name = self._of.get(name, {})
        if who in of_name:
            del of_name[who]
            self._taken -= 1
            if not of_name:
                del self._of[name]

    def _full(self, what: str, scope: str, limit: int) -> ResourceExhausted:
        return ResourceExhausted(
            f"there are {what}, as many as there may be",
            scope=scope,
            limit=limit,
            retry_after_seconds=self._retry_seconds,
            hint=self._hint,
        )
