"""All devices as the page shows them, as JSON that is made once however many look.

While anybody looks, a task asks for the devices' state twice a second and hears their lines ten times a second. Each
tick it makes one message, for all viewers: what changed, and the new points of numeric columns. A viewer that comes, or
comes back from a stall, first gets one with everything. Times are the server's, in ms since 1970: a page tells from
`at` how old data is, whatever its own clock says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastflight.errors import FastFlightError
from fastflight.gateway.backend import Backend
from fastflight.gateway.columns import Columns, Point
from fastflight.gateway.hearing import Ear, Hear
from fastflight.service.failure import numbered
from fastflight.transport.tap import Chunk, Gap

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
# Messages that wait for a viewer; then it has stalled, and they are not kept for it.
MAX_WAITING = 5
# What of the state of a device is shown.
STATE = ("url", "open", "holder", "recording", "trouble")


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
            elif item.direction == "rx":
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


class Viewer:
    """One page: the messages that wait for it. Belongs to the gateway's loop."""

    def __init__(self) -> None:
        self.skipped = 0
        # The next message has to be one with everything.
        self.behind = True
        self._ended = False
        self._waiting: deque[str] = deque()
        self._came = asyncio.Event()

    def offer(self, message: str) -> None:
        """Never waits. What a viewer does not take in time it does not get, and counts; it is `behind` then."""
        if len(self._waiting) >= MAX_WAITING:
            self.skipped += len(self._waiting) + 1
            self._waiting.clear()
            self.behind = True
            return
        self._waiting.append(message)
        self._came.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._came.set()

    async def next(self) -> str | None:
        """The next message; None when no more will come."""
        while not self._waiting:
            if self._ended:
                return None
            self._came.clear()
            await self._came.wait()
        return self._waiting.popleft()


class Fleet:
    """The devices behind `backend`, heard with `hear`, for viewers on one event loop."""

    def __init__(self, backend: Backend, hear: Hear, clock: Callable[[], int] = time.time_ns) -> None:
        self._backend = backend
        self._hear = hear
        self._clock = clock
        self._viewers: set[Viewer] = set()
        # By device: what the backend says of it, what it said, and what viewers know of both.
        self._state: Mapping[str, Mapping[str, Any]] = {}
        self._watched: dict[str, Watched] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        self._running: asyncio.Task[None] | None = None
        self._ticks = 0
        self._trouble = ""

    @contextlib.contextmanager
    def viewed(self) -> Iterator[Viewer]:
        """Somebody looks, for a `with` block."""
        viewer = Viewer()
        self._viewers.add(viewer)
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    async def _run(self) -> None:
        asking = asyncio.ensure_future(self._ask())
        try:
            await self._hear_all()
        except Exception as error:  # an edge: nobody waits for this task, and its viewers come back by themselves
            numbered(error)
        finally:
            asking.cancel()
            self._running = None
            for viewer in self._viewers:
                viewer.end()

    async def _hear_all(self) -> None:
        """Tick, until nobody has looked for a while."""
        loop = asyncio.get_running_loop()
        due = alone_since = loop.time()
        with contextlib.ExitStack() as heard:
            ears: dict[str, Ear] = {}
            while True:
                if self._viewers:
                    alone_since = loop.time()
                elif loop.time() - alone_since > LINGER_SECONDS:
                    return
                for name in self._state.keys() - ears.keys():
                    self._watched[name] = Watched()
                    ears[name] = heard.enter_context(self._hear(name))
                self._tick({name: self._watched[name].feed(ear.rest()) for name, ear in ears.items()})
                due = max(due + TICK_SECONDS, loop.time())
                await asyncio.sleep(due - loop.time())

    async def _ask(self) -> None:
        """Keep the state as it is now. Where the server behind does not answer, it stays, and `trouble` says why."""
        while True:
            try:
                devices = await self._backend.act("devices", b"")
            except FastFlightError as error:
                self._trouble = str(error)
            else:
                self._trouble = ""
                self._state = {str(each["name"]): each for each in devices[:MAX_DEVICES]}
            await asyncio.sleep(STATE_SECONDS)

    def _tick(self, points: Mapping[str, list[Point]]) -> None:
        self._ticks += 1
        now_ns = self._clock()
        changed: dict[str, dict[str, Any]] = {}
        for name, each in self._state.items():
            if name not in self._watched:
                continue
            shown = {key: each.get(key) for key in STATE} | self._watched[name].shown(now_ns)
            old = self._shown.get(name, {})
            new = {key: value for key, value in shown.items() if key not in old or old[key] != value}
            if points.get(name):
                new["points"] = points[name]
            if new:
                changed[name] = new
            self._shown[name] = shown
        about = {"at": now_ns // 1_000_000, "tick": self._ticks, "trouble": self._trouble}
        message = json.dumps({"type": "tick", **about, "devices": changed}, separators=(",", ":"))
        whole: str | None = None
        for viewer in self._viewers:
            if viewer.behind:
                if whole is None:
                    whole = self._whole(about)
                viewer.behind = False
                viewer.offer(whole)
            else:
                viewer.offer(message)

    def _whole(self, about: Mapping[str, Any]) -> str:
        devices = {name: {**shown, "points": list(self._watched[name].points)} for name, shown in self._shown.items()}
        return json.dumps({"type": "all", **about, "devices": devices}, separators=(",", ":"))
