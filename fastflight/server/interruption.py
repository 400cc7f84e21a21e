"""Iterators over a source's items, for Flight, which steps through them in threads of its own.

`InContext` keeps the context variables of the handler that made it: Flight runs each step of a generator in a fresh
thread state, without what the handler has set.

`Interruptible` can also be ended from outside. A handler that waits in C++ for its client to read cannot be
interrupted, and its source, which stands between two batches, has the device meanwhile. `interrupt` closes the source
there, in a thread of its own, since a board's recovery takes seconds. If the handler comes back, it gets `Stopped`,
never what looks like the end.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from fastflight.runtime.failure import numbered
from fastflight.runtime.outgoing import close
from fastflight.runtime.stream import Stream

T = TypeVar("T")


class InContext(Iterator[T], Generic[T]):
    """`items`, each step of them and their end, in a copy of the maker's context."""

    __slots__ = ("_items", "_run")

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._run = contextvars.copy_context().run

    def __next__(self) -> T:
        return self._run(next, self._items)

    def close(self) -> None:
        """Close the items, if they have a `close`."""
        self._run(close, self._items)


class Interruptible(Iterable[T], Generic[T]):
    """The items of `stream`'s source, in the maker's context. To be iterated once."""

    __slots__ = ("_interrupted", "_items", "_run", "_stepping", "_stream")

    def __init__(self, items: Iterator[T], stream: Stream) -> None:
        self._items = items
        self._run = contextvars.copy_context().run
        self._stream = stream
        # Held while the source runs, in whichever thread.
        self._stepping = threading.Lock()
        self._interrupted = False

    def __iter__(self) -> Iterator[T]:
        # A generator: a step of it is no call (`docs/architecture.md`, "Flight's threads").
        while True:
            with self._stepping:
                if self._interrupted:
                    self._stream.check()
                item: Any = self._run(next, self._items, self)
            if item is self:
                return
            yield item

    def close(self) -> None:
        """Close the items. Does nothing the second time."""
        with self._stepping:
            self._close()

    def interrupt(self) -> None:
        """The stream was stopped: close the items once they are between two steps. Returns at once, in any thread."""
        try:
            threading.Thread(target=self._interrupt, name="interruption", daemon=True).start()
        except RuntimeError:  # the system has no thread left: the caller waits, and stops other streams afterwards
            self._interrupt()

    def _interrupt(self) -> None:
        with self._stepping:
            self._interrupted = True
            try:
                self._close()
            except BaseException as error:  # the client gets the reason why the stream was stopped
                numbered(error, self._stream.trace)

    def _close(self) -> None:
        self._run(close, self._items)
