"""Time limits for the clients of Flight streams.

Flight's Python API cannot end a handler that waits in C++ for its client. While the handler waits, its source holds the
device. So one thread checks all streams that wait for their clients, every `ROUND_SECONDS`:

- A stalled reader does not read the batch (at most 2 MiB) that it is offered, for `Limits.stalled_seconds`.
- An idle writer sends nothing, for `Limits.silent_seconds`, although the handler waits for it. A writer that itself
  waits for acknowledgements is not idle: a board at 115200 baud needs a minute and a half for the bytes in the queue.

Their streams are stopped. The source is closed at once, which frees the device and leaves an old file whole. A client
that reads on, or ends its side, gets UNAVAILABLE with the reason. If the client still does nothing, its connection is
cut, which ends the handler. The connection is not cut while it carries another call or stream that is still wanted.
Streams that were stopped for any other reason are treated in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from fastflight.concurrency.threads import PeriodicThread
from fastflight.runtime.failure import log_unexpected
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.connections import cut

log = structlog.get_logger(__name__)

# A time limit may be exceeded by this much.
ROUND_SECONDS = 0.5
# Time from stopping an idle writer's stream to cutting its connection. A working client reacts at once, or as soon as
# its own source yields a batch. A stalled reader gets its full time limit again, to learn the reason if it reads on.
GRACE_SECONDS = 5.0


@dataclass(slots=True)
class _Wait:
    """One stream's wait for its client. Times are those of the clock of `Deadlines`."""

    # `Stream.offered` or `Stream.awaited`: the start time identifies the wait.
    began: float
    is_reader: bool
    # When the client last made progress.
    moved: float
    # When the stream was first found stopped, or when its connection was last cut.
    stopped: float | None = None


class Deadlines:
    """Enforces the time limits of the streams in `registry`, whose connections were accepted at `port`.

    `start` runs it in a thread until `close`. `look` does one round, for tests that set the clock.
    """

    def __init__(self, registry: StreamRegistry, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._port = port
        self._clock = clock
        self._waits: dict[Stream, _Wait] = {}
        self._thread = PeriodicThread(self.look, ROUND_SECONDS, "deadlines")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Does nothing the second time, or if it was not started."""
        self._thread.close()

    def look(self) -> None:
        """Check every stream once."""
        waits: dict[Stream, _Wait] = {}
        for stream in self._registry.waiting_for_clients():
            wait = self._wait_of(stream)
            if wait is None:
                continue
            waits[stream] = wait
            try:
                self._check(stream, wait, self._clock())
            except Exception as error:  # an edge: the other streams must be checked all the same
                log_unexpected(error, stream.trace)
        self._waits = waits

    def _wait_of(self, stream: Stream) -> _Wait | None:
        """Return the wait that the stream is in; None if it has just ended."""
        offered, awaited = stream.offered, stream.awaited
        began = offered or awaited
        if not began:
            return None
        known = self._waits.get(stream)
        if known is not None and known.began == began:
            return known
        return _Wait(began, bool(offered), began, stopped=None if known is None else known.stopped)

    def _check(self, stream: Stream, wait: _Wait, now: float) -> None:
        """Stop the stream if its client has exceeded its time. Cut the connection if the client does not react."""
        client_waits = stream.client_waits
        if not wait.is_reader and client_waits is not None and client_waits():
            wait.moved = now
        if not stream.why_stop:
            self._stop_overdue(stream, wait, now)
        if not stream.why_stop:
            return
        if wait.stopped is None:
            wait.stopped = now
        grace = self._registry.limits.stalled_seconds if wait.is_reader else GRACE_SECONDS
        if now - wait.stopped >= grace and stream.has_connection_alone:
            self._cut(stream, wait, now)

    def _stop_overdue(self, stream: Stream, wait: _Wait, now: float) -> None:
        idle, kind = now - wait.moved, stream.resolved.request.type
        if wait.is_reader and idle >= stream.stalled_seconds:
            log.info("a client does not read", seconds=round(idle, 1), type=kind)
            stream.stop_overdue("reader", f"the client has not read for {stream.stalled_seconds:g} s")
        elif not wait.is_reader and idle >= stream.silent_seconds:
            log.info("a client does not send", seconds=round(idle, 1), type=kind)
            stream.stop_overdue("writer", f"the client has sent nothing for {stream.silent_seconds:g} s")

    def _cut(self, stream: Stream, wait: _Wait, now: float) -> None:
        connections = cut(self._port, stream.peer)
        if not connections:  # already closed, or no descriptor was free to find it: the next round tries again
            return
        self._registry.count_cut(connections)
        wait.stopped = now
        client = "reader" if wait.is_reader else "writer"
        log.warning("the connection of an overdue client is cut", client=client, type=stream.resolved.request.type)
