"""A sync source that can be ended from outside, while its handler waits for the client.

A handler that waits in C++ for its client to read cannot be interrupted, and the source, which stands between two of
its batches meanwhile, has the device. `interrupt` closes it there, in a thread of its own: a board's recovery takes
seconds. Should the handler come back, it gets `Stopped`, never what looks like the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from fastflight.concurrency.carried import Carried
from fastflight.runtime.failure import numbered
from fastflight.runtime.stream import Stream

T = TypeVar("T")


class Interruptible(Iterator[T], Generic[T]):
    """The items of `stream`'s source, each step of them in the maker's context."""

    __slots__ = ("_interrupted", "_items", "_stepping", "_stream")

    def __init__(self, items: Iterator[T], stream: Stream) -> None:
        self._items = Carried(items)
        self._stream = stream
        # Held while the source runs, in whichever thread.
        self._stepping = threading.Lock()
        self._interrupted = False

    def __next__(self) -> T:
        with self._stepping:
            if self._interrupted:
                self._stream.check()
            return next(self._items)

    def close(self) -> None:
        """Close the items, if they can be and have not been."""
        with self._stepping:
            self._items.close()

    def interrupt(self) -> None:
        """The stream was stopped: close them when they are between two, and return at once. From any thread."""
        try:
            threading.Thread(target=self._interrupt, name="interruption", daemon=True).start()
        except RuntimeError:  # there is no thread left to be had: who stops streams waits, and goes on with the others
            self._interrupt()

    def _interrupt(self) -> None:
        with self._stepping:
            self._interrupted = True
            try:
                self._items.close()
            except BaseException as error:  # the client gets the reason why it was stopped
                numbered(error, self._stream.trace)
