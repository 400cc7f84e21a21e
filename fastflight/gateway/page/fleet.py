"""Makes the messages of the live page: the state of all devices and the numbers in their output, as JSON.

While the page has viewers, one task reads the devices' state twice a second, and another reads their output ten times
a second. Each tick makes one message for each caller, shared by all viewers of that caller: the changes, and the new
points of numeric columns. A new viewer, or one that had stalled, first gets a message with everything. Times are in ms
since 1970 by the server's clock; a page computes from `at` how old data is, whatever its own clock says.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import AccessError, FastFlightError
from fastflight.gap import Gap, moment
from fastflight.gateway.backend import Backend
from fastflight.gateway.page.listeners import DeviceListener, OpenListener
from fastflight.gateway.page.marks import MarkFinder
from fastflight.gateway.page.view import PageView, PageViewer
from fastflight.runtime.failure import log_unexpected
from fastflight.sources.session_rows import line_lost
from fastflight.tables.columns import Columns, Point
from fastflight.transport.chunk_buffer import Chunk

TICK_SECONDS = 0.1
# How often the devices' state is read.
STATE_SECONDS = 0.5
# Gaps of a device that are listed: the newest ones.
MAX_GAPS = 10
# The period over which rows per second are counted.
RATE_SECONDS = 3.0
# Points of a device that a new viewer's charts start with: half a minute at ten a second.
MAX_POINTS = 300
# Devices that are shown, more than anybody reads; with more, messages would be too large for ten a second.
MAX_DEVICES = 1000
# A device is late when it has been silent for three times its usual interval, and at least for this long.
LATE_INTERVALS = 3
MIN_LATE_SECONDS = 3.0
# The weight of the newest interval in the average.
INTERVAL_WEIGHT = 0.2
# Devices are still read for this long after the last viewer has left, so that reloading the page loses nothing.
LINGER_SECONDS = 5.0


class DeviceOutput:
    """What the page knows of one device's output: columns, points, counts and times."""

    def __init__(self, since_ns: int = 0) -> None:
        """`since_ns`: when the page began to read. Rows that it skips of the time before are not counted."""
        self.columns = Columns()
        self._marks = MarkFinder()
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)
        self.rows = 0
        self.skipped = 0
        self.lost = 0
        self.gaps: deque[Gap] = deque(maxlen=MAX_GAPS)
        self.last_ns: int | None = None
        self._since_ns = since_ns
        self._first_ns: int | None = None
        # Whether something is missing before the next row.
        self._is_broken = False
        self._interval = 0.0
        self._recent: deque[tuple[int, int]] = deque()

    def feed(self, items: Sequence[Chunk | Gap]) -> list[Point]:
        """Take the traffic of the device since the last call; return the new points.

        A point without values stands where something is missing before the next one.
        """
        points: list[Point] = []
        run: list[Chunk] = []
        for item in items:
            if isinstance(item, Gap) or item.cut:
                points += self._add(run)
                run = []
                self.columns.cut()
            if (gap := self._gap_before(item)) is not None:
                self.gaps.append(gap)
                self.lost += gap.rows or 0
                self._is_broken = True
            if isinstance(item, Gap) or item.direction != "rx" or item.waited:
                continue  # data that waited has no time, so no place in a chart
            if self._is_broken:
                self._is_broken = False
                points.append([item.time_ns // 1_000_000])
                if self.gaps[-1].to_time is None:
                    self.gaps[-1] = replace(self.gaps[-1], to_time=moment(item.time_ns // 1000))
            run.append(item)
        points += self._add(run)
        self.points += points
        return points

    def _gap_before(self, item: Chunk | Gap) -> Gap | None:
        """Return what is missing at an item, or before it."""
        if isinstance(item, Gap):
            since = None if self.last_ns is None else moment(self.last_ns // 1000)
            return replace(item, from_time=item.from_time or since)
        is_new = not self.gaps or self.gaps[-1].last + 1 != item.seq
        if item.unread is None or self.last_ns is None or not is_new:
            return None
        return line_lost(item.seq, item.cut, *item.unread)

    def values(self, now_ns: int) -> dict[str, Any]:
        """Return the device's values for the page, at the time `now_ns`."""
        while self._recent and self._recent[0][0] < now_ns - RATE_SECONDS * 1e9:
            self._recent.popleft()
        self._marks.feed((), now_ns)
        late = max(MIN_LATE_SECONDS, LATE_INTERVALS * self._interval)
        is_measured = self._first_ns is not None and now_ns - self._first_ns >= RATE_SECONDS * 1e9
        return {
            "last": None if self.last_ns is None else self.last_ns // 1_000_000,
            "late": round(late * 1000),
            "rate": round(sum(rows for _, rows in self._recent) / RATE_SECONDS, 1) if is_measured else None,
            "rows": self.rows,
            "skipped": self.skipped,
            "lost": self.lost,
            "gaps": [gap.details() for gap in self.gaps],
            "marks": list(self._marks.marks),
            "line": self.columns.line,
            "columns": list(self.columns.names),
        }

    def _add(self, chunks: list[Chunk]) -> list[Point]:
        if not chunks:
            return []
        rows, points = self.columns.feed([(chunk.time_ns, chunk.data) for chunk in chunks])
        newest = chunks[-1].time_ns
        self._marks.feed(self.columns.lines, newest)
        if self.last_ns is not None:
            spent = max(0.0, (newest - self.last_ns) / 1e9)
            self._interval += INTERVAL_WEIGHT * (spent - self._interval)
        self.last_ns = newest
        self._first_ns = chunks[0].time_ns if self._first_ns is None else self._first_ns
        self.rows += rows
        if newest >= self._since_ns:
            self.skipped += self.columns.skipped
        # The first chunks may be of a whole minute.
        recent = [chunk for chunk in chunks if chunk.time_ns > newest - RATE_SECONDS * 1e9]
        if recent_rows := rows if len(recent) == len(chunks) else sum(chunk.data.count(b"\n") for chunk in recent):
            self._recent.append((newest, recent_rows))
        return points


# The values of a device whose output is not read.
SILENCE = DeviceOutput().values(0)


class Fleet:
    """Serves viewers on one event loop with the devices of `backend`, whose output it reads with `open_listener`."""

    def __init__(self, backend: Backend, open_listener: OpenListener) -> None:
        self._backend = backend
        self._open_listener = open_listener
        self._views: dict[Identity, PageView] = {}
        self._outputs: dict[str, DeviceOutput] = {}
        self._running: asyncio.Task[None] | None = None
        self._new_viewer = asyncio.Event()
        self._ticks = 0

    @property
    def running(self) -> bool:
        """Whether there are viewers, or were until `LINGER_SECONDS` ago."""
        return self._running is not None

    @property
    def viewers(self) -> list[PageViewer]:
        """All viewers."""
        return [viewer for view in list(self._views.values()) for viewer in list(view.viewers)]

    @contextlib.contextmanager
    def viewed(self, caller: Identity = ANYBODY) -> Iterator[PageViewer]:
        """Add a viewer for the length of a `with` block."""
        viewer = PageViewer()
        view = self._views.get(caller)
        if view is None:
            view = self._views[caller] = PageView(caller)
        view.viewers.add(viewer)
        self._new_viewer.set()
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        try:
            yield viewer
        finally:
            view.viewers.discard(viewer)

    async def _run(self) -> None:
        updating = asyncio.ensure_future(self._update_state())
        try:
            await self._read_all(updating)
        except Exception as error:  # an edge: nobody awaits this task, and the viewers' pages reconnect by themselves
            log_unexpected(error)
        finally:
            updating.cancel()
            self._running = None
            for view in self._views.values():
                view.end()
            self._views = {}

    async def _read_all(self, updating: asyncio.Task[None]) -> None:
        """Tick until there have been no viewers for a while, or the task `updating` has failed."""
        loop = asyncio.get_running_loop()
        due = alone_since = loop.time()
        listeners: dict[str, DeviceListener] = {}
        # Closing one of these ends the reading of its device.
        open_listeners: dict[str, contextlib.ExitStack] = {}
        try:
            while not updating.done():
                if self.viewers:
                    alone_since = loop.time()
                elif loop.time() - alone_since > LINGER_SECONDS:
                    return
                wanted = {name for view in self._views.values() for name in view.devices_to_read()}
                for name in listeners.keys() - wanted:  # frees its line, or its session
                    open_listeners.pop(name).close()
                    del listeners[name], self._outputs[name]
                for name in wanted - listeners.keys():
                    self._outputs[name] = DeviceOutput(time.time_ns())
                    open_listeners[name] = contextlib.ExitStack()
                    listeners[name] = open_listeners[name].enter_context(self._open_listener(name))
                self._tick({name: self._outputs[name].feed(listener.rest()) for name, listener in listeners.items()})
                due = max(due + TICK_SECONDS, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            for each in open_listeners.values():
                each.close()
        updating.result()

    async def _update_state(self) -> None:
        """Keep the devices' state for each caller up to date.

        If the server behind does not answer, the old state stays, and the view's `trouble` says why.
        """
        while True:
            self._new_viewer.clear()
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
                    await self._new_viewer.wait()

    def _tick(self, points: Mapping[str, list[Point]]) -> None:
        self._ticks += 1
        now_ns = time.time_ns()
        values = {name: output.values(now_ns) for name, output in self._outputs.items()}
        recent = {name: list(output.points) for name, output in self._outputs.items()} if self._anybody_behind() else {}
        about = {"at": now_ns // 1_000_000, "tick": self._ticks}
        for view in self._views.values():
            view.tick(about, values, SILENCE, points, recent)

    def _anybody_behind(self) -> bool:
        return any(viewer.behind for viewer in self.viewers)
