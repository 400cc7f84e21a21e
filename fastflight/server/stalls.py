"""Clients that read and take nothing.

Flight's Python cannot end a handler that waits in C++ for its client to read. While it does, its source stands still,
and has the device. So a thread looks now and then for streams whose client has had something in front of it for
`Limits.stalled_seconds` and has not taken it: such a stream is stopped, which ends its source on the spot, so that the
device is free. A client that reads on has the reason then. From one that still takes nothing after as long again the
connection is cut, which frees the handler, as soon as nothing else runs on it, as in `server.silence`. The same becomes
of a stream that was stopped by somebody else.

A batch that is being taken, however slowly, is progress: the operating system knows how much of what waits was
acknowledged. That is of the connection: it counts for a stream that has one alone. Of several that share one each has
to take a batch in the time, which is at most 2 MiB.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from fastflight.concurrency.guard import Guard
from fastflight.runtime.failure import numbered
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.connections import Address, address, cut, progress
from fastflight.transport.progress import Taken

log = structlog.get_logger(__name__)

# Looks in the time that a client has: it may get an eighth of it more.
LOOKS = 8
# The shortest and the longest pause between two looks.
MIN_LOOK_SECONDS = 0.01
MAX_LOOK_SECONDS = 15.0


@dataclass(slots=True)
class _Wait:
    """What is known of one stream. Times are the clock's."""

    # The stream's own word on since when, by which another wait is known to be another one.
    offered: float
    # When something was last taken.
    moved: float
    taken: Taken | None
    stopped: float | None = None


class Stalls:
    """Looks after the streams of `registry` from `start` to `close`; `look` is one round, for tests.

    `port` is where their connections were accepted.
    """

    def __init__(
        self,
        registry: StreamRegistry,
        port: int,
        clock: Callable[[], float] = time.monotonic,
        taken: Callable[[int], Mapping[Address, Taken]] = progress,
    ) -> None:
        """`clock` is the one by which `Stream.offered` is; `taken` says what was taken of connections at a port."""
        self._registry = registry
        self._port = port
        self._clock = clock
        self._taken = taken
        self._waits: dict[Stream, _Wait] = {}
        pause = min(max(registry.limits.stalled_seconds / LOOKS, MIN_LOOK_SECONDS), MAX_LOOK_SECONDS)
        self._guard = Guard(self.look, pause, "stalls")

    def start(self) -> None:
        """Look now and then, from a thread."""
        self._guard.start()

    def close(self) -> None:
        """Look no more. Does nothing the second time, or where it was not started."""
        self._guard.close()

    def look(self) -> None:
        """One round."""
        streams = self._registry.offering()
        found = self._taken(self._port) if any(stream in self._waits for stream in streams) else {}
        before, self._waits = self._waits, {}
        for stream in streams:
            wait = before.get(stream)
            taken = found.get(there) if found and (there := address(stream.peer)) is not None else None
            offered = stream.offered
            if not offered:
                continue
            if wait is None or wait.offered != offered:
                stopped = None if wait is None else wait.stopped
                wait = _Wait(offered, offered, taken, stopped)
            self._waits[stream] = wait
            try:
                self._judge(stream, wait, taken)
            except Exception as error:  # an edge: the other streams are to be judged all the same
                numbered(error, stream.trace)

    def _judge(self, stream: Stream, wait: _Wait, taken: Taken | None) -> None:
        now = self._clock()
        if wait.taken is not None and taken is not None and taken.acknowledged != wait.taken.acknowledged:
            # Where nothing waits for the client's system, its program has not asked for more: what moves is not this.
            if taken.waits and stream.has_connection_alone:
                wait.moved = now
        wait.taken = taken
        seconds = stream.stalled_seconds
        if not stream.why_stop and now - wait.moved >= seconds:
            log.info("a client takes nothing", seconds=round(now - wait.moved, 1), type=stream.asked.request.type)
            stream.stop_overdue("reader", f"the client has taken nothing for {seconds:g} s")
        if not stream.why_stop:
            return
        if wait.stopped is None:
            wait.stopped = now
        if now - wait.stopped >= self._registry.limits.stalled_seconds and stream.has_connection_alone:
            self._registry.count_cut(cut(self._port, stream.peer))
            wait.stopped = now
            log.warning("the connection of a client that takes nothing is cut", type=stream.asked.request.type)
