"""Runs coroutines in the calling thread, without an event loop.

Code that serves both threads and event loops is written once, with `await`. In a thread, all that it awaits blocks and
so never suspends: `finish` runs such a coroutine to its end, `Blocking` iterates such an asynchronous iterator, and
`NonBlocking` gives an iterator to code that awaits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, or raise its exception."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine has suspended in a thread without an event loop")


class Blocking(Iterator[T], Generic[T]):
    """Iterates `items`, which never suspend, in the threads that call this."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    def __next__(self) -> T:
        try:
            return finish(self._items.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Close the items, if they have an `aclose`."""
        aclose = getattr(self._items, "aclose", None)
        if aclose is not None:
            finish(aclose())


class NonBlocking(AsyncIterator[T], Generic[T]):
    """The `items` of an iterator for code that awaits. Each step blocks, and does not suspend."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)

    async def __anext__(self) -> T:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close the items, if they have a `close`."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
