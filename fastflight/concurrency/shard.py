"""A shard: one event loop in its own thread.

`submit` takes a coroutine from any thread and returns a future for its result. `close` cancels the running tasks, waits
for their `finally` blocks, and joins the thread. An object that belongs to a shard (a device, a stream) is used only on
its loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from fastflight.concurrency.offload import is_unbroken
from fastflight.errors import SourceError, Stopped

T = TypeVar("T")

# How many blocking calls, such as opening ports or resolving names, may run beside the loop at the same time.
MAX_OFFLOAD_THREADS = 32
# How often a waiting thread checks that its client is connected and that the loop runs. When a client leaves, its
# device is free after this time. The checks of 1,000 idle streams take a fifth of a core.
LOOK_SECONDS = 0.5
# How long the tasks of a closed shard may take to end: a board's recovery takes about two seconds.
CLOSE_SECONDS = 5.0


def asyncio_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the standard library that can watch file descriptors, because ports wait in that way."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def uv_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of libuv: uvloop, or winloop on Windows."""
    if sys.platform == "win32":
        import winloop as uv
    else:
        import uvloop as uv
    return uv.new_event_loop()


# By the name of the package.
LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio_loop, "uvloop": uv_loop}
# libuv's, except on Windows, where it was not measured.
new_loop = asyncio_loop if sys.platform == "win32" else uv_loop


def always() -> bool:
    """The default of `still_wanted`: nothing ends the wait."""
    return True


class Shard:
    """An event loop in a thread called `name`. Start it, submit coroutines, close it; also a context manager."""

    def __init__(
        self,
        name: str = "shard-0",
        loops: Callable[[], asyncio.AbstractEventLoop] = new_loop,
        offload_threads: int = MAX_OFFLOAD_THREADS,
        owner: str = "",
    ) -> None:
        """`loops` makes the event loop. At most `offload_threads` blocking calls run beside it at the same time.

        `owner` is the only user of the shard, whose code may block the loop. The watchdog then calls `block`.
        """
        self.name = name
        self.owner = owner
        # The error for those that wait for a loop that its owner blocks; None while the loop turns.
        self.blocked: SourceError | None = None
        # Called with that error. Only shards with an owner use it.
        self.when_blocked: set[Callable[[SourceError], object]] = set()
        self.loop = loops()
        self._offload = concurrent.futures.ThreadPoolExecutor(offload_threads, f"{name}-offload")
        self.loop.set_default_executor(self._offload)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._submitting = threading.Lock()
        self._submitted: set[concurrent.futures.Future[Any] | asyncio.Task[None]] = set()
        self._closing = False
        self._grace = CLOSE_SECONDS

    @property
    def running(self) -> bool:
        """Whether the thread runs, so that submitted coroutines can make progress."""
        return self._thread.is_alive()

    @property
    def load(self) -> int:
        """The number of submitted coroutines that have not ended: streams, and readers of devices' lines."""
        return len(self._submitted)

    @property
    def thread_id(self) -> int | None:
        """The id of the loop's thread; None before it starts."""
        return self._thread.ident

    def tasks(self) -> int:
        """Return how many tasks the loop has. May be called from any thread."""
        return len(asyncio.all_tasks(self.loop))

    def start(self) -> Shard:
        """Start the thread. Returns self."""
        self._thread.start()
        return self

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `coroutine` on the loop. Cancelling the future cancels it. Raise `Stopped` if the shard is closed."""
        with self._submitting:
            if self._closing:
                coroutine.close()
                raise Stopped("the event loop is closed", where=self.name)
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        return future

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[], object]) -> None:
        """Run `work` on the loop, and then call `ended`, even if `work` was cancelled before it began.

        Cheaper than `submit`, for a caller that needs no result. Raise `Stopped` if the shard is closed.
        """
        with self._submitting:
            if self._closing:
                raise Stopped("the event loop is closed", where=self.name)
            self.loop.call_soon_threadsafe(self._begin, work, ended)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[], object]) -> None:
        task = self.loop.create_task(work())
        self._submitted.add(task)

        def end(_: object) -> None:
            self._submitted.discard(task)
            ended()

        task.add_done_callback(end)

    def call(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop, from any thread. Does nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback)

    def wait(self, event: threading.Event, still_wanted: Callable[[], bool] = always) -> bool:
        """Block the calling thread until this shard sets `event`, then return True.

        Call `still_wanted` every `LOOK_SECONDS`. Raise `Stopped` once that returns False or the loop has ended. Errors
        of `still_wanted` are raised too.
        """
        while not event.wait(LOOK_SECONDS):
            self.look(still_wanted)
        return True

    def look(self, still_wanted: Callable[[], bool] = always) -> None:
        """Raise `Stopped`, or the error of `still_wanted`, if `wait` would raise it now.

        Call it every `LOOK_SECONDS` in a thread that waits for this shard without `wait`.
        """
        if self.blocked is not None:
            raise self.blocked
        if not self.running:
            raise Stopped("the event loop has ended", where=self.name)
        if not still_wanted():
            raise Stopped("the rest is not wanted")

    def block(self, seconds: float) -> None:
        """Fail all that waits for this shard, because its owner has blocked the loop for so long. For any thread."""
        hint = "In aread, await what takes long; or write read, which may block"
        error = SourceError(f"it has blocked its event loop for {seconds:.0f} s", where=self.owner, hint=hint)
        self.blocked = error
        for fail in tuple(self.when_blocked):
            fail(error)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Cancel every task, give them `timeout` seconds to end, join the thread. Does nothing the second time."""
        self.stop(timeout)
        self.join(timeout * 2)

    def stop(self, timeout: float = CLOSE_SECONDS) -> None:
        """Begin to close, and return at once. Tasks are cancelled, and have `timeout` seconds to end."""
        with self._submitting:  # coroutines that were submitted before have tasks, which are cancelled with the others
            if self._closing:
                return
            self._closing = True
            self._grace = timeout
        if self._thread.ident is None:
            self.loop.close()
        else:
            self.loop.call_soon_threadsafe(self.loop.stop)

    def join(self, timeout: float) -> None:
        """Wait until the thread of a stopped shard has ended, for at most `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Shard:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self._turn(lambda: self._closing)
            ending = self.loop.create_task(self._end_tasks())
            ending.add_done_callback(lambda _: self.loop.stop())
            self._turn(ending.done)
        finally:
            self._offload.shutdown(wait=False, cancel_futures=True)
            self.loop.close()

    def _turn(self, over: Callable[[], bool]) -> None:
        """Run the loop, and run it again each time it stops, until `over` returns True."""
        while not over():
            # If a task raises SystemExit, only that task has failed. The loop's other tasks and their clean-up go on.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    async def _end_tasks(self) -> None:
        """Cancel all tasks and wait for them. A port that is being opened starts one meanwhile: cancel it, too."""
        deadline = self.loop.time() + self._grace
        cancelled: set[asyncio.Task[Any]] = set()
        while (rest := deadline - self.loop.time()) > 0:
            await asyncio.sleep(0)  # a task that is cancelled before its first step runs no clean-up
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            if not tasks:
                break
            for task in tasks - cancelled:
                if not is_unbroken(task):
                    task.cancel()
            cancelled |= tasks
            await asyncio.wait(tasks, timeout=rest)
        await self.loop.shutdown_asyncgens()
