"""The streams of a server: how many, whose, how much, and how to end them.

A handler opens a `Stream` in the `StreamRegistry` and closes it with its outcome. `open` waits, within limits, until
there is room for it (`runtime.admission`), and so does `aopen` for a coroutine.

Calls that are no streams, but last as long as a device takes, run inside `call` or `acall`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

from prometheus_client.metrics_core import Metric

from fastflight.errors import Stopped
from fastflight.runtime.admission import DEFAULT_LIMITS, LIMITED, Admission, CallTicket, Limits
from fastflight.runtime.metrics import DurationHistogram, family, histogram, single
from fastflight.runtime.process import has_descriptors, threads_by_kind
from fastflight.runtime.request_log import RequestLog, code_of
from fastflight.runtime.stream import Stream
from fastflight.runtime.tracing import current
from fastflight.service.resolve import ResolvedRequest

T = TypeVar("T")

# What is counted of a source's streams once they are over.
ENDED = ("finished", "failed", "cancelled", "rows", "bytes")
COUNTED = ("open", "started", *ENDED)
OUTCOMES = ("finished", "failed", "cancelled")
# Clients that may exceed their time: one that takes nothing, one that sends nothing.
OVERDUE = ("reader", "writer")


class StreamRegistry:
    """All streams of one server."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        # Taken when a stream opens and when it closes; who waits until none is open waits for `_empty`.
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._emptying = 0
        self._admission = Admission(limits, lock=self._lock)
        self._counts: dict[str, dict[str, int]] = {}
        self._durations: dict[str, DurationHistogram] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._overdue: Counter[str] = Counter()
        self._cut = 0
        self._request_log = RequestLog()

    def open(self, asked: ResolvedRequest, left: Callable[[], bool], who: Callable[[], str], peer: str = "") -> Stream:
        """A stream for a request, once there is room for it. `left` says whether its client has gone, `who` asks.

        `peer` is the connection that it came by.

        Raises `ResourceExhausted` where there is no room in time, `Stopped` while draining.
        """
        stream = self._made(asked, left, who, True)
        stream.peer = peer
        self._admission.acquire(stream, asked.device, stream.asker, left)
        stream.begin()
        return stream

    async def aopen(self, asked: ResolvedRequest, left: Callable[[], bool], who: Callable[[], str]) -> Stream:
        """The same for a coroutine; cancel it when the client goes."""
        stream = self._made(asked, left, who, False)
        await self._admission.aacquire(stream, asked.device, stream.asker)
        stream.begin()
        return stream

    @contextmanager
    def call(
        self, name: str, device: str | None, left: Callable[[], bool], who: Callable[[], str], peer: str = ""
    ) -> Iterator[None]:
        """Around a call `name` on `device` that is no stream. It is admitted like one, by a limit of its own."""
        place = CallTicket()
        place.peer = peer
        with self._told(name, device, who()):
            self._admission.acquire(place, device, who, left)
            try:
                yield
            finally:
                self._admission.release(place)

    @asynccontextmanager
    async def acall(
        self, name: str, device: str | None, who: Callable[[], str]
    ) -> AsyncIterator[Callable[[Callable[[], T]], Callable[[], T]]]:
        """The same for a coroutine; cancel it when the client goes.

        Gives what is to be put around work for a thread, which goes on then: it has the place until it has ended.
        """
        place = CallTicket(in_thread=False)
        handed = False

        def until_done(work: Callable[[], T]) -> Callable[[], T]:
            nonlocal handed
            handed = True

            def working() -> T:
                try:
                    return work()
                finally:
                    self._admission.release(place)

            return working

        with self._told(name, device, who()):
            await self._admission.aacquire(place, device, who)
            try:
                yield until_done
            finally:
                if not handed:
                    self._admission.release(place)

    def closed(self, stream: Stream, outcome: str) -> None:
        """Take a stream out, once."""
        with self._lock:
            if stream.left:
                return
            self._admission.leave(stream)
            counts = self._counts.get(stream.asked.request.type) or self._counted(stream)
            counts[outcome] += 1
            counts["rows"] += stream.rows
            counts["bytes"] += stream.bytes
            counts["rejected"] += stream.rejected
            if stream.began:
                self._durations[stream.asked.request.type].observe(time.perf_counter() - stream.began)
            if stream.error is not None:
                self._errors[code_of(stream.error)] += 1
            if self._emptying and not self._admission.streams:
                self._empty.notify_all()

    def tell(self, stream: Stream) -> None:
        """A line in the log about a stream that ends."""
        if stream.error is None and not self._request_log.in_detail:
            return
        self._request_log.ended(
            stream.asked.request.type,
            trace=stream.trace,
            device=stream.asked.device,
            identity=stream.asker(),
            outcome=stream.outcome,
            seconds=time.perf_counter() - stream.began if stream.began else 0.0,
            rows=stream.rows,
            size=stream.bytes,
            error=stream.error,
        )

    def count_overdue(self, client: str) -> None:
        """Count a stream that was ended because its client, one of `OVERDUE`, exceeded its time."""
        with self._lock:
            self._overdue[client] += 1

    def count_cut(self, connections: int) -> None:
        """Count connections that were cut because their clients did not react."""
        with self._lock:
            self._cut += connections

    @property
    def draining(self) -> bool:
        """Whether the server shuts down."""
        return self._admission.closed

    @property
    def limits(self) -> Limits:
        """What is admitted, and for how long."""
        return self._admission.limits

    def has_alone(self, stream: Stream) -> bool:
        """Whether `stream` may be ended by its connection: every other stream there is to end, and no call is there.

        A stream or a call that waits to be admitted counts as well.
        """
        with self._lock:
            if any(place.peer == stream.peer for place in (*self._admission.calls, *self._admission.waiting)):
                return False
            return all(each is stream or each.why_stop for each in self._streams() if each.peer == stream.peer)

    @property
    def state(self) -> str:
        """`serving`, `draining` once it shuts down, `overloaded` while there is room, or a descriptor, for nobody."""
        if self._admission.closed:
            return "draining"
        return "overloaded" if self._admission.overloaded or not has_descriptors() else "serving"

    def waiting_for_clients(self) -> list[Stream]:
        """Flight streams that wait for their clients to take or to send something."""
        return [stream for stream in self._running() if stream.in_thread and (stream.offered or stream.awaited)]

    def refuse_while_draining(self) -> None:
        """Raise `Stopped` once the server shuts down."""
        if self._admission.closed:
            raise Stopped("the server shuts down", hint="Ask again when it is back")

    def cancel(self, ticket: bytes, of: str | None = None) -> int:
        """End the open streams of a ticket, those of all or of one identity; how many there were."""
        found = [
            stream
            for stream in self._running()
            if stream.asked.ticket == ticket and (of is None or stream.identity == of)
        ]
        for stream in found:
            stream.stop("cancelled by CancelFlightInfo")
        return len(found)

    def drain(self) -> None:
        """Admit no more streams, and let live ones come to their end."""
        self._admission.close()
        for stream in self._running():
            stream.drain()

    def stop_all(self) -> None:
        """End every open stream."""
        for stream in self._running():
            stream.stop("the server shuts down")

    def wait_empty(self, timeout: float) -> bool:
        """Wait until no stream is open; False after `timeout` seconds."""
        with self._empty:
            self._emptying += 1
            try:
                return self._empty.wait_for(lambda: not self._admission.streams, timeout)
            finally:
                self._emptying -= 1

    def stats(self) -> dict[str, Any]:
        """Counts in all and by source. Rows and bytes are those of streams that have ended, and of the open ones."""
        admission = self._admission
        with self._lock:
            sources = {name: Counter(counts) for name, counts in self._counts.items()}
            running = [stream for stream in self._streams() if stream.began]
            handlers = sum(place.in_thread for place in (*admission.streams, *admission.calls, *admission.waiting))
            calls, waiting, refused = len(admission.calls), len(admission.waiting), admission.refused
            for stream in running:
                counts = sources.setdefault(stream.asked.request.type, Counter())
                counts.update({"open": 1, "rows": stream.rows, "bytes": stream.bytes})
        total: Counter[str] = Counter()
        for counts in sources.values():
            counts["started"] = sum(counts[key] for key in ("open", "finished", "failed", "cancelled"))
            total.update(counts)
        return {
            **{key: total[key] for key in COUNTED},
            "calls": calls,
            "waiting": waiting,
            "refused": refused,
            "threads": threads_by_kind(handlers),
            "sources": {name: {key: counts[key] for key in COUNTED} for name, counts in sources.items()},
        }

    @contextmanager
    def _told(self, name: str, device: str | None, identity: str) -> Iterator[None]:
        """A call: told of at its end, as streams are."""
        trace, began = current(), time.perf_counter()
        outcome, failure = "finished", None
        try:
            yield
        except GeneratorExit:
            outcome = "cancelled"
            raise
        except BaseException as error:
            outcome, failure = "cancelled" if isinstance(error, Stopped) else "failed", error
            raise
        finally:
            seconds = time.perf_counter() - began
            self._count_call(name, outcome, failure)
            self._request_log.ended(
                name,
                trace=trace,
                device=device,
                identity=identity,
                outcome=outcome,
                seconds=seconds,
                error=failure,
            )

    def _made(
        self, asked: ResolvedRequest, left: Callable[[], bool], who: Callable[[], str], in_thread: bool
    ) -> Stream:
        stream = Stream(self, asked, left, who, in_thread)
        if self._request_log.in_detail:
            stream.asker()
        return stream

    def _streams(self) -> Iterator[Stream]:
        return (cast(Stream, place) for place in self._admission.streams)

    def _running(self) -> list[Stream]:
        with self._lock:
            return list(self._streams())

    def _counted(self, stream: Stream) -> dict[str, int]:
        self._durations[stream.asked.request.type] = DurationHistogram()
        return self._counts.setdefault(stream.asked.request.type, dict.fromkeys((*ENDED, "rejected"), 0))

    def _count_call(self, name: str, outcome: str, failure: BaseException | None) -> None:
        with self._lock:
            self._calls[name, outcome] += 1
            if failure is not None:
                self._errors[code_of(failure)] += 1

    def metrics(self) -> Iterator[Metric]:
        """Streams and calls, and the limits on them."""
        stats = self.stats()
        with self._lock:
            durations = [((source,), each.buckets(), each.sum) for source, each in self._durations.items()]
            rejected = [((source,), counts["rejected"]) for source, counts in self._counts.items()]
            calls = list(self._calls.items())
            errors = [((code,), count) for code, count in self._errors.items()]
            levels = list(self._admission.levels())
            overdue = [((client,), self._overdue[client]) for client in OVERDUE]
            cut = self._cut
            refused = [((limit,), self._admission.refusals.get(limit, 0)) for limit in LIMITED]
        sources = stats["sources"].items()
        threads = stats["threads"].items()
        ended = [((source, outcome), counts[outcome]) for source, counts in sources for outcome in OUTCOMES]
        yield family("fastflight_streams_open", (((source,), counts["open"]) for source, counts in sources))
        yield family("fastflight_streams_total", ended)
        yield histogram("fastflight_stream_duration_seconds", durations)
        yield family("fastflight_rows_total", (((source,), counts["rows"]) for source, counts in sources))
        yield family("fastflight_bytes_total", (((source,), counts["bytes"]) for source, counts in sources))
        yield family("fastflight_rejected_rows_total", rejected)
        yield family("fastflight_errors_total", errors)
        yield family("fastflight_overdue_total", overdue)
        yield single("fastflight_connections_cut_total", cut)
        yield single("fastflight_calls_open", stats["calls"])
        yield family("fastflight_calls_total", calls)
        yield single("fastflight_waiting", stats["waiting"])
        yield family("fastflight_limit", (((limit,), size) for limit, size, _ in levels))
        yield family("fastflight_limit_used", (((limit,), used) for limit, _, used in levels))
        yield family("fastflight_refused_total", refused)
        yield family("fastflight_threads", (((kind,), count) for kind, count in threads if kind != "all"))
