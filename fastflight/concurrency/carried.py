"""Iterators that run in the context variables of whoever made them.

Flight takes each step of a generator on whatever state of Python its thread has then: what a handler has set is not
there any more.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Carried(Iterator[T], Generic[T]):
    """`items`, each step of them, and their end, in a copy of the maker's context."""

    __slots__ = ("_items", "_run")

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._run = contextvars.copy_context().run

    def __next__(self) -> T:
        return self._run(next, self._items)

    def close(self) -> None:
        """Close the items, if they can be."""
        close = getattr(self._items, "close", None)
        if close is not None:
            self._run(close)
