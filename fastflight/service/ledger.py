"""The streams of a server: how many, whose, how much, and how to end them.

A handler opens a `Stream` in the `Ledger` and closes it with its outcome. `open` waits, in bounds, until there is room
for it (`service.admission`), and so does `aopen` for a coroutine. `Stream.check` is asked between batches and while
waiting: it raises `Stopped` once the peer has left, the stream was cancelled, or the server shuts down.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fastflight.errors import Stopped
from fastflight.service.admission import DEFAULT_LIMITS, Admission, Limits, Place
from fastflight.service.requests import Request
from fastflight.service.threads import by_kind

# Asking gRPC whether a client has left takes it up to 0.4 ms, as long as sending half a megabyte.
LOOK_SECONDS = 0.2
# What is counted of a source's streams.
COUNTED = ("started", "finished", "failed", "cancelled", "rows", "bytes")


class Stream:
    """One running do_get, do_put or do_exchange."""

    def __init__(
        self, ledger: Ledger, source: str, ticket: bytes, left: Callable[[], bool], place: Place, in_thread: bool
    ) -> None:
        self._ledger = ledger
        self.place = place
        # Its handler is a thread of its own.
        self.in_thread = in_thread
        self._left = left
        self.source = source
        self.ticket = ticket
        self.rows = 0
        self.bytes = 0
        self.began = self._looked = time.perf_counter()
        self.why_stop = ""
        # How it went; known before it closes where its handler has more to do than to answer.
        self.outcome = ""
        self.lasting = False
        self._drain: Callable[[], None] | None = None
        self._stopped: Callable[[], object] | None = None

    def when_stopped(self, tell: Callable[[], object] | None) -> None:
        """For a handler that would wait rather than `check` now and then: `tell` is called, from any thread."""
        self._stopped = tell
        if self.why_stop and tell is not None:
            tell()

    def stop(self, why: str) -> None:
        """End it from outside."""
        self.why_stop = why
        tell = self._stopped
        if tell is not None:
            tell()

    def when_draining(self, drain: Callable[[], None]) -> None:
        """A live stream: `drain` makes it end by itself when the server shuts down."""
        self._drain = drain
        if self._ledger.draining:
            drain()

    def drain(self) -> None:
        """The server shuts down."""
        if self._drain is not None:
            self._drain()

    def check(self) -> bool:
        """True while the stream is wanted; raises `Stopped` when it no longer is."""
        if self.why_stop:
            raise Stopped(self.why_stop, hint="Ask again")
        if self._left():
            raise Stopped("the client has left")
        return True

    def passing(self) -> None:
        """The same between batches. A write to a client that has left fails by itself: looking is the second line."""
        now = time.perf_counter()
        if self.why_stop or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.check()

    def count(self, rows: int, size: int) -> None:
        """A batch was sent or taken."""
        self.rows += rows
        self.bytes += size

    def failing(self) -> _Failing:
        """Around what must not leave the stream open when it raises."""
        return _Failing(self)

    def close(self, outcome: str) -> None:
        """The stream has `finished`, `failed`, or was `cancelled`. A `lasting` one is not closed, but remembers it."""
        self.outcome = self.outcome or outcome
        if not self.lasting:
            self._ledger.closed(self, self.outcome)


class _Failing:
    """A context that closes its stream with what is raised in it. Not a generator: every call passes through one."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        """Nothing has been raised yet."""

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is not None:
            self._stream.close("cancelled" if issubclass(kind, Stopped) else "failed")


class Ledger:
    """All streams of one server."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        # Taken at each call; who waits until none is open waits for `_empty`.
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._admission = Admission(limits)
        self._open: set[Stream] = set()
        self._counts: dict[str, Counter[str]] = {}
        self._draining = False

    def open(self, request: Request, ticket: bytes, left: Callable[[], bool], identity: str) -> Stream:
        """A stream for `request`, once there is room for it. `left` says whether its client has gone.

        `identity` is who asks. Raises `ResourceExhausted` where there is no room in time, `Stopped` while draining.
        """
        return self._opened(request, ticket, left, self._admission.acquire(identity, request.belongs_to, left), True)

    async def aopen(self, request: Request, ticket: bytes, left: Callable[[], bool], identity: str) -> Stream:
        """The same for a coroutine; cancel it when the client goes."""
        return self._opened(request, ticket, left, await self._admission.aacquire(identity, request.belongs_to), False)

    def _opened(
        self, request: Request, ticket: bytes, left: Callable[[], bool], place: Place, in_thread: bool
    ) -> Stream:
        with self._lock:
            if self._draining:
                self._admission.release(place)
                self.refuse_while_draining()
            stream = Stream(self, request.type, ticket, left, place, in_thread)
            self._open.add(stream)
            self._count(request.type)["started"] += 1
            return stream

    def closed(self, stream: Stream, outcome: str) -> None:
        """Take a stream out, once."""
        with self._lock:
            if stream in self._open:
                self._open.remove(stream)
                self._admission.release(stream.place)
                counts = self._count(stream.source)
                counts[outcome] += 1
                counts["rows"] += stream.rows
                counts["bytes"] += stream.bytes
                if not self._open:
                    self._empty.notify_all()

    @property
    def draining(self) -> bool:
        """Whether the server shuts down."""
        return self._draining

    def refuse_while_draining(self) -> None:
        """Raise `Stopped` once the server shuts down."""
        if self._draining:
            raise Stopped("the server shuts down", hint="Ask again when it is back")

    def cancel(self, ticket: bytes) -> int:
        """End the open streams of a ticket; how many there were."""
        with self._lock:
            found = [stream for stream in self._open if stream.ticket == ticket]
        for stream in found:
            stream.stop("cancelled by CancelFlightInfo")
        return len(found)

    def drain(self) -> None:
        """Admit no more streams, and let live ones come to their end."""
        with self._lock:
            self._draining = True
            running = list(self._open)
        self._admission.close()
        for stream in running:
            stream.drain()

    def stop_all(self) -> None:
        """End every open stream."""
        with self._lock:
            running = list(self._open)
        for stream in running:
            stream.stop("the server shuts down")

    def wait_empty(self, timeout: float) -> bool:
        """Wait until no stream is open; False after `timeout` seconds."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._open, timeout)

    def stats(self) -> dict[str, Any]:
        """Counts in all and by source. Rows and bytes are those of streams that have ended, and of the open ones."""
        with self._lock:
            sources = {name: Counter(counts) for name, counts in self._counts.items()}
            handlers = sum(stream.in_thread for stream in self._open)
            for stream in self._open:
                sources[stream.source].update({"open": 1, "rows": stream.rows, "bytes": stream.bytes})
        total: Counter[str] = Counter()
        for counts in sources.values():
            total.update(counts)
        keys = ("open", *COUNTED)
        return {
            **{key: total[key] for key in keys},
            "waiting": self._admission.waiting,
            "refused": self._admission.refused,
            "threads": by_kind(handlers + self._admission.waiting_threads),
            "sources": {name: {key: counts[key] for key in keys} for name, counts in sources.items()},
        }

    def _count(self, source: str) -> Counter[str]:
        counts = self._counts.get(source)
        if counts is None:
            counts = self._counts[source] = Counter()
        return counts
