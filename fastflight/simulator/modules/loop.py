"""The board's `asyncio`: tasks, sleeping, and reading from the standard input.

It has the parts that programs beside which requests run use: `run`, `create_task`, `current_task`, `sleep`, `sleep_ms`,
`gather`, `new_event_loop`, `CancelledError` and `StreamReader`. Tasks run in the order of their times, timers of
`machine` run while all tasks wait.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

# How often a task that waits for input looks for it while no other task is due.
POLL_SECONDS = 0.001


class CancelledError(BaseException):
    """Raised in a task that is cancelled."""


class Sleep:
    """Awaiting it ends at a time, or when `ready` returns true."""

    def __init__(self, seconds: float, ready: Callable[[], bool] | None = None) -> None:
        self.until = time.monotonic() + max(0.0, seconds)
        self.ready = ready

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


class Task:
    """A coroutine that the loop runs. Awaiting it gives its result, or raises its error."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self.cancelled = False

    def done(self) -> bool:
        return self.ended

    def cancel(self) -> bool:
        self.cancelled = not self.ended
        return self.cancelled

    def __await__(self) -> Generator[Sleep, None, Any]:
        while not self.ended:
            yield Sleep(0, self.done)
        if self.error is not None:
            raise self.error
        return self.result


class Loop:
    """The tasks of one interpreter."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Task, Sleep]] = []
        self._current: Task | None = None

    def contents(self) -> dict[str, Any]:
        """Return the attributes of the module."""
        return {
            "CancelledError": CancelledError,
            "StreamReader": self._reader,
            "create_task": self.create_task,
            "current_task": lambda: self._current,
            "gather": self._gather,
            "get_event_loop": lambda: self,
            "new_event_loop": self._clear,
            "run": self.run,
            "sleep": Sleep,
            "sleep_ms": lambda milliseconds: Sleep(milliseconds / 1000),
        }

    def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        task = Task(coroutine)
        self._add(task, Sleep(0))
        return task

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run until the coroutine ends, or no task is left. Return its result, or raise its error."""
        main = self.create_task(coroutine)
        while self._waiting and not main.ended:
            self._turn(main)
        if main.error is not None:
            raise main.error
        return main.result

    def _turn(self, main: Task) -> None:
        """Run the next task that is due, or wait."""
        until, order, task, sleep = heapq.heappop(self._waiting)
        now = time.monotonic()
        if sleep.ready is not None and not sleep.ready() and not task.cancelled:
            others = self._waiting[0][0] if self._waiting else now + POLL_SECONDS
            if others > now:
                self._runtime.sleep(min(POLL_SECONDS, others - now))
            heapq.heappush(self._waiting, (max(until, now) + POLL_SECONDS / 10, next(self._order), task, sleep))
            return
        if until > now and not task.cancelled:
            self._runtime.sleep(min(until - now, POLL_SECONDS))
            heapq.heappush(self._waiting, (until, order, task, sleep))
            return
        self._current = task
        try:
            step = task.coroutine.throw(CancelledError()) if task.cancelled else task.coroutine.send(None)
            task.cancelled = False
            self._add(task, step)
        except StopIteration as end:
            task.ended, task.result = True, end.value
        except (Exception, CancelledError) as error:
            task.ended, task.error = True, error
            if task is not main and not isinstance(error, CancelledError):
                self._runtime.report(error)
        finally:
            self._current = None

    def _add(self, task: Task, sleep: Sleep) -> None:
        heapq.heappush(self._waiting, (sleep.until, next(self._order), task, sleep))

    def _clear(self) -> Loop:
        self._waiting.clear()
        return self

    async def _gather(self, *tasks: Any) -> list[Any]:
        started = [each if isinstance(each, Task) else self.create_task(each) for each in tasks]
        return [await each for each in started]

    def _reader(self, stream: Any) -> Reader:
        return Reader(self._runtime, stream)


class Reader:
    """`asyncio.StreamReader` of the standard input."""

    def __init__(self, runtime: Runtime, stream: Any) -> None:
        self._runtime = runtime
        self._stream = stream

    async def read(self, count: int) -> Any:
        await Sleep(0, lambda: len(self._runtime.uart.ring) > 0)
        return self._stream.read(count)
