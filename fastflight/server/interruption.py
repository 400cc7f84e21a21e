"""Iterates a source's items for Flight, so that the iteration can also be ended from outside.

Flight runs each step of a generator in a new thread state, without the context variables of the handler.
`Interruptible` keeps them.

A handler that waits in C++ for its client to read cannot be interrupted. Meanwhile its source waits between two batches
and holds the device. `interrupt` closes the source at that point, in a thread of its own, because a board's recovery
takes seconds. If Flight asks for another item after that, it gets `Stopped`, never a normal end.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from fastflight.runtime.failure import log_unexpected
from fastflight.runtime.stream import Stream

T = TypeVar("T")


class Interruptible(Iterable[T], Generic[T]):
    """The items of `stream`'s source, iterated in a copy of the creator's context. Iterate it once."""

    __slots__ = ("_interrupted", "_items", "_run", "_stepping", "_stream")

    def __init__(self, items: Generator[T, None, None], stream: Stream) -> None:
        self._items = items
        self._run = contextvars.copy_context().run
        self._stream = stream
        # Held while the source runs, in any thread.
        self._stepping = threading.Lock()
        self._interrupted = False

    def __iter__(self) -> Iterator[T]:
        # A generator, because a step of a generator calls no function (decision 0061).
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
        """Close the items as soon as no step runs, because the stream was stopped. Return at once. For any thread."""
        try:
            threading.Thread(target=self._interrupt, name="interruption", daemon=True).start()
        except RuntimeError:  # the system cannot start a thread: the caller has to wait
            self._interrupt()

    def _interrupt(self) -> None:
        with self._stepping:
            self._interrupted = True
            try:
                self._close()
            except BaseException as error:  # the client gets the reason why the stream was stopped
                log_unexpected(error, self._stream.trace)

    def _close(self) -> None:
        self._run(self._items.close)
