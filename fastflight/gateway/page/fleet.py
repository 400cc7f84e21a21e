"""All devices as the page shows them, as JSON that is made once for all who may see the same.

While anybody looks, a task asks for the devices' state twice a second and hears their lines ten times a second. Each
tick it makes one message for each caller, however many look as that one: what changed, and the new points of numeric
columns. A viewer that comes, or comes back from a stall, first gets one with everything. Times are the server's, in ms
since 1970: a page tells from `at` how old data is, whatever its own clock says.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastflight.errors import AccessError, FastFlightError
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import ANYONE, Caller
from fastflight.gateway.page.columns import Columns, Point
from fastflight.gateway.page.hearing import Ear, Hear
from fastflight.gateway.page.view import PageView, PageViewer
from fastflight.runtime.failure import log_unexpected
from fastflight.transport.chunk_buffer import Chunk, Gap

TICK_SECONDS = 0.1
# From one look at the devices' state to the next.
STATE_SECONDS = 0.5
# What rows per second are counted over.
RATE_SECONDS = 3.0
# Points of a device that a new viewer's charts begin with: half a minute at ten a second.
MAX_POINTS = 300
# More devices are listed than anybody looks at; beyond, a message would be too large for ten a second.
MAX_DEVICES = 1000
# A device is late when it has been silent for three times as long as it usually is, and for so long at least.
LATE_INTERVALS = 3
MIN_LATE_SECONDS = 3.0
# How much of the usual interval the newest one is.
INTERVAL_WEIGHT = 0.2
# Lines stay open for so long after the last viewer has left: a page that is loaded again finds them as they were.
LINGER_SECONDS = 5.0


class Watched:
    """What one device said."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)
        self.rows = 0
        self.lost = 0
        self.last_ns: int | None = None
        self._interval = 0.0
        self._recent: deque[tuple[int, int]] = deque()

    def feed(self, items: Sequence[Chunk | Gap]) -> list[Point]:
        """Take what crossed the line; the new points."""
        points: list[Point] = []
        run: list[Chunk] = []
        for item in items:
            if isinstance(item, Gap):
                points += self._heard(run)
                run = []
                self.columns.cut()
                self.lost += item.last - item.first + 1
            elif item.direction == "rx" and not item.waited:  # a chart has no place for what has no time
                if item.cut:
                    points += self._heard(run)
                    run = []
                    self.columns.cut()
                run.append(item)
        points += self._heard(run)
        self.points += points
        return points

    def shown(self, now_ns: int) -> dict[str, Any]:
        """The counts, as of `now_ns`."""
        while self._recent and self._recent[0][0] < now_ns - RATE_SECONDS * 1e9:
            self._recent.popleft()
        late = max(MIN_LATE_SECONDS, LATE_INTERVALS * self._interval)
        return {
            "last": None if self.last_ns is None else self.last_ns // 1_000_000,
            "late": round(late * 1000),
            "rate": round(sum(rows for _, rows in self._recent) / RATE_SECONDS, 1),
            "rows": self.rows,
            "lost": self.lost,
            "line": self.columns.line,
            "columns": list(self.columns.names),
        }

    def _heard(self, chunks: list[Chunk]) -> list[Point]:
        if not chunks:
            return []
        rows, points = self.columns.feed([(chunk.time_ns, chunk.data) for chunk in chunks])
        newest = chunks[-1].time_ns
        if self.last_ns is not None:
            spent = max(0.0, (newest - self.last_ns) / 1e9)
            self._interval += INTERVAL_WEIGHT * (spent - self._interval)
        self.last_ns = newest
        self.rows += rows
        if rows:
            self._recent.append((newest, rows))
        return points


# What is shown of a device of which nothing is heard.
SILENCE = Watched().shown(0)


class Fleet:
    """The devices behind `backend`, heard with `hear`, for viewers on one event loop."""

    def __init__(self, backend: Backend, hear: Hear, clock: Callable[[], int] = time.time_ns) -> None:
        self._backend = backend
        self._hear = hear
        self._clock = clock
        self._views: dict[Caller, PageView] = {}
        # By device: what it said.
        self._watched: dict[str, Watched] = {}
        self._running: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._ticks = 0

    @property
    def running(self) -> bool:
        """Whether anybody looks, or did a moment ago."""
        return self._running is not None

    @property
    def viewers(self) -> list[PageViewer]:
        """Those who look."""
        return [viewer for view in list(self._views.values()) for viewer in list(view.viewers)]

    @contextlib.contextmanager
    def viewed(self, caller: Caller = ANYONE) -> Iterator[PageViewer]:
        """Somebody looks, for a `with` block."""
        viewer = PageViewer()
        view = self._views.get(caller)
        if view is None:
            view = self._views[caller] = PageView(caller)
        view.viewers.add(viewer)
        self._came.set()
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        try:
            yield viewer
        finally:
            view.viewers.discard(viewer)

    async def _run(self) -> None:
        asking = asyncio.ensure_future(self._ask())
        try:
            await self._hear_all(asking)
        except Exception as error:  # an edge: nobody waits for this task, and its viewers come back by themselves
            log_unexpected(error)
        finally:
            asking.cancel()
            self._running = None
            for view in self._views.values():
                view.end()
            self._views = {}

    async def _hear_all(self, asking: asyncio.Task[None]) -> None:
        """Tick, until nobody has looked for a while, or the `asking` has failed."""
        loop = asyncio.get_running_loop()
        due = alone_since = loop.time()
        ears: dict[str, Ear] = {}
        # What ends the hearing of each.
        heard: dict[str, contextlib.ExitStack] = {}
        try:
            while not asking.done():
                if self.viewers:
                    alone_since = loop.time()
                elif loop.time() - alone_since > LINGER_SECONDS:
                    return
                there = {name for view in self._views.values() for name in view.heard()}
                for name in ears.keys() - there:  # its line, or its session, is for others
                    heard.pop(name).close()
                    del ears[name], self._watched[name]
                for name in there - ears.keys():
                    self._watched[name] = Watched()
                    heard[name] = contextlib.ExitStack()
                    ears[name] = heard[name].enter_context(self._hear(name))
                self._tick({name: self._watched[name].feed(ear.rest()) for name, ear in ears.items()})
                due = max(due + TICK_SECONDS, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            for each in heard.values():
                each.close()
        asking.result()

    async def _ask(self) -> None:
        """Keep what there is for each caller as it is now.

        Where the server behind does not answer, it stays, and `trouble` says why.
        """
        while True:
            self._came.clear()
            for caller, view in list(self._views.items()):
                if not view.viewers and len(self._views) > 1:
                    del self._views[caller]
                    continue
                try:
                    self._backend.check(caller)
                    devices = await self._backend.act("devices", b"", caller)
                except AccessError as error:
                    self._views.pop(caller, None)
                    view.end(error)
                except FastFlightError as error:
                    view.trouble = str(error)
                else:
                    view.trouble = ""
                    view.state = {str(each["name"]): each for each in devices[:MAX_DEVICES]}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATE_SECONDS):
                    await self._came.wait()

    def _tick(self, points: Mapping[str, list[Point]]) -> None:
        self._ticks += 1
        now_ns = self._clock()
        said = {name: watched.shown(now_ns) for name, watched in self._watched.items()}
        kept = {name: list(watched.points) for name, watched in self._watched.items()} if self._anybody_behind() else {}
        about = {"at": now_ns // 1_000_000, "tick": self._ticks}
        for view in self._views.values():
            view.tick(about, said, SILENCE, points, kept)

    def _anybody_behind(self) -> bool:
        return any(viewer.behind for viewer in self.viewers)
