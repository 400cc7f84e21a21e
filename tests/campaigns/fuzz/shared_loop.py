"""One event loop for all executions of a target: to make one takes longer than most of what is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# The loop closes generators that were left half read: one after the other, where one reads the next.
TURNS = 3


class Loop:
    """`run` is for within `running`; no task may outlive what started it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            yield
        self._loop = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            for _ in range(TURNS):
                self._loop.run_until_complete(asyncio.sleep(0))
            assert not (left := asyncio.all_tasks(self._loop)), left
