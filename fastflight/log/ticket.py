"""What an append returns: a ticket, which is done when its group of appends has succeeded or failed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from fastflight.errors import FastFlightError
from fastflight.log.values import Appended

# A group of appends that succeed or fail together. If it has failed, the result makes an error for each that waits.
Commit: TypeAlias = Future[Callable[[], FastFlightError] | None]


def new_commit() -> Commit:
    """Return a commit whose `set_result` its writer calls once. Nobody can cancel it."""
    commit: Commit = Future()
    commit.set_running_or_notify_cancel()
    return commit


class Ticket:
    """An append that may still wait for the disk. The append happens even if nobody waits for its ticket."""

    __slots__ = ("_commit", "first", "last")

    def __init__(self, first: int, last: int, commit: Commit) -> None:
        # The numbers that the first and the last row get if the append succeeds.
        self.first = first
        self.last = last
        self._commit = commit

    @property
    def done(self) -> bool:
        """Whether the append has ended, so that `result` returns or raises at once."""
        return self._commit.done()

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the rows are durable.

        Raises `StorageError` if the append failed, `TimeoutError` if it has not ended after `timeout` seconds.
        """
        try:
            make_error = self._commit.result(timeout)
        except TimeoutError:
            raise TimeoutError("the disk has not answered yet") from None
        if make_error is not None:
            raise make_error()
        return Appended(self.first, self.last)
