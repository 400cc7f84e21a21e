"""Counts, limits and ends the streams and calls of a server.

A handler opens a `Stream` in the `StreamRegistry` and closes it with its outcome. `open` waits, within limits, until
there is room for it (`runtime.admission`); `aopen` does so for a coroutine.

Calls that are not streams, but may last as long as a device takes, run inside `call` or `acall`.
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

# The counters of a source's streams that have ended.
ENDED = ("finished", "failed", "cancelled", "rows", "bytes")
COUNTED = ("open", "started", *ENDED)
OUTCOMES = ("finished", "failed", "cancelled")
# The kinds of clients that may exceed their time: readers that do not read, writers that do not send.
OVERDUE = ("reader", "writer")


class StreamRegistry:
    """All streams of one server."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        # Held for a moment when a stream opens and when it closes.
        self._lock = threading.Lock()
        # Notified when the last stream closes, if threads wait for that.
        self._empty = threading.Condition(self._lock)
        self._empty_waiters = 0
        self._admission = Admission(limits, lock=self._lock)
        self._counts: dict[str, dict[str, int]] = {}
        self._durations: dict[str, DurationHistogram] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._overdue: Counter[str] = Counter()
        self._cut = 0
        self._request_log = RequestLog()

    def open(
        self,
        resolved: ResolvedRequest,
        has_left: Callable[[], bool],
        client_name: Callable[[], str],
        peer: str = "",
    ) -> Stream:
        """Return a stream for a request, once there is room for it.

        `has_left` returns whether the client has left, `client_name` its name. `peer` is its connection, as gRPC writes
        it.

        Raise `ResourceExhausted` if there is no room in time, `Stopped` while draining.
        """
        stream = self._new_stream(resolved, has_left, client_name, True)
        stream.peer = peer
        self._admission.acquire(stream, resolved.device, stream.client_name, has_left)
        stream.begin()
        return stream

    async def aopen(
        self, resolved: ResolvedRequest, has_left: Callable[[], bool], client_name: Callable[[], str]
    ) -> Stream:
        """As `open`, for a coroutine. The caller must cancel it when the client leaves."""
        stream = self._new_stream(resolved, has_left, client_name, False)
        await self._admission.aacquire(stream, resolved.device, stream.client_name)
        stream.begin()
        return stream

    @contextmanager
    def call(
        self,
        name: str,
        device: str | None,
        has_left: Callable[[], bool],
        client_name: Callable[[], str],
        peer: str = "",
    ) -> Iterator[None]:
        """A context for a call `name` on `device` that is not a stream. Calls are admitted by a limit of their own."""
        ticket = CallTicket()
        ticket.peer = peer
        with self._logged(name, device, client_name):
            self._admission.acquire(ticket, device, client_name, has_left)
            try:
                yield
            finally:
                self._admission.release(ticket)

    @asynccontextmanager
    async def acall(
        self, name: str, device: str | None, client_name: Callable[[], str]
    ) -> AsyncIterator[Callable[[Callable[[], T]], Callable[[], T]]]:
        """As `call`, for a coroutine. The caller must cancel it when the client leaves.

        Yields a wrapper for work in a thread, which goes on after a cancellation. The wrapped work keeps the ticket
        and releases it when it ends.
        """
        ticket = CallTicket(in_thread=False)
        handed_over = False

        def until_done(work: Callable[[], T]) -> Callable[[], T]:
            nonlocal handed_over
            handed_over = True

            def wrapped() -> T:
                try:
                    return work()
                finally:
                    self._admission.release(ticket)

            return wrapped

        with self._logged(name, device, client_name):
            await self._admission.aacquire(ticket, device, client_name)
            try:
                yield until_done
            finally:
                if not handed_over:
                    self._admission.release(ticket)

    def remove(self, stream: Stream, outcome: str) -> None:
        """Take a stream out and count it. Does nothing the second time."""
        with self._lock:
            if stream.released:
                return
            self._admission.leave(stream)
            counts = self._counts.get(stream.resolved.request.type) or self._begin_counts(stream)
            counts[outcome] += 1
            counts["rows"] += stream.rows
            counts["bytes"] += stream.bytes
            counts["rejected"] += stream.rejected
            if stream.began:
                self._durations[stream.resolved.request.type].observe(time.perf_counter() - stream.began)
            if stream.error is not None:
                self._errors[code_of(stream.error)] += 1
            if self._empty_waiters and not self._admission.streams:
                self._empty.notify_all()

    def log_end(self, stream: Stream) -> None:
        """Log that a stream ends."""
        if stream.error is None and not self._request_log.in_detail:
            return
        self._request_log.ended(
            stream.resolved.request.type,
            trace=stream.trace,
            device=stream.resolved.device,
            identity=stream.client_name(),
            outcome=stream.outcome,
            seconds=time.perf_counter() - stream.began if stream.began else 0.0,
            rows=stream.rows,
            size=stream.bytes,
            error=stream.error,
        )

    def count_overdue(self, client: str) -> None:
        """Count a stream that was ended because its client exceeded its time. `client` is one of `OVERDUE`."""
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
        """The limits of the server."""
        return self._admission.limits

    def has_connection_alone(self, stream: Stream) -> bool:
        """Whether the connection of `stream` carries no call, and no other stream that has not been stopped.

        Streams and calls that wait to be admitted count as well.
        """
        with self._lock:
            if any(ticket.peer == stream.peer for ticket in (*self._admission.calls, *self._admission.waiting)):
                return False
            return all(each is stream or each.why_stop for each in self._streams() if each.peer == stream.peer)

    @property
    def state(self) -> str:
        """`serving`; `draining` once the server shuts down; `overloaded` while room or descriptors are exhausted."""
        if self._admission.closed:
            return "draining"
        return "overloaded" if self._admission.overloaded or not has_descriptors() else "serving"

    def waiting_for_clients(self) -> list[Stream]:
        """Return the Flight streams that wait for their clients to read or to send something."""
        return [stream for stream in self._running() if stream.in_thread and (stream.offered or stream.awaited)]

    def refuse_while_draining(self) -> None:
        """Raise `Stopped` once the server shuts down."""
        if self._admission.closed:
            raise Stopped("the server shuts down", hint="Ask again when it is back")

    def cancel(self, ticket: bytes, owner: str | None = None) -> int:
        """Stop the open streams of a ticket, of all identities or of `owner` only. Return how many there were."""
        streams = [
            stream
            for stream in self._running()
            if stream.resolved.ticket == ticket and (owner is None or stream.identity == owner)
        ]
        for stream in streams:
            stream.stop("cancelled by CancelFlightInfo")
        return len(streams)

    def of_device(self, device: str) -> list[Stream]:
        """Return the open streams of a device."""
        return [stream for stream in self._running() if stream.resolved.device == device]

    def stop_device(self, device: str, why: str, stops: Callable[[Stream], bool] = lambda stream: True) -> None:
        """Stop the open streams of a device that `stops` chooses, by default all. Their clients get `why`."""
        for stream in self.of_device(device):
            if stops(stream):
                stream.stop(why)

    def drain(self) -> None:
        """Admit no more streams and calls, and let live streams end by themselves."""
        self._admission.close()
        for stream in self._running():
            stream.drain()

    def stop_all(self) -> None:
        """Stop every open stream."""
        for stream in self._running():
            stream.stop("the server shuts down")

    def wait_empty(self, timeout: float) -> bool:
        """Wait until no stream is open. Return False if that takes longer than `timeout` seconds."""
        with self._empty:
            self._empty_waiters += 1
            try:
                return self._empty.wait_for(lambda: not self._admission.streams, timeout)
            finally:
                self._empty_waiters -= 1

    def stats(self) -> dict[str, Any]:
        """Return counts in total and by source. Rows and bytes include those of open streams."""
        admission = self._admission
        with self._lock:
            sources = {name: Counter(counts) for name, counts in self._counts.items()}
            running = [stream for stream in self._streams() if stream.began]
            handlers = sum(ticket.in_thread for ticket in (*admission.streams, *admission.calls, *admission.waiting))
            calls, waiting, refused = len(admission.calls), len(admission.waiting), admission.refused
            for stream in running:
                counts = sources.setdefault(stream.resolved.request.type, Counter())
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
    def _logged(self, name: str, device: str | None, client_name: Callable[[], str]) -> Iterator[None]:
        """A context for a call, which logs and counts it at its end."""
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
            with self._lock:
                self._calls[name, outcome] += 1
                if failure is not None:
                    self._errors[code_of(failure)] += 1
            if failure is not None or self._request_log.in_detail:
                self._request_log.ended(
                    name,
                    trace=trace,
                    device=device,
                    identity=client_name(),
                    outcome=outcome,
                    seconds=seconds,
                    error=failure,
                )

    def _new_stream(
        self,
        resolved: ResolvedRequest,
        has_left: Callable[[], bool],
        client_name: Callable[[], str],
        in_thread: bool,
    ) -> Stream:
        stream = Stream(self, resolved, has_left, client_name, in_thread)
        if self._request_log.in_detail:
            stream.client_name()
        return stream

    def _streams(self) -> Iterator[Stream]:
        return (cast(Stream, ticket) for ticket in self._admission.streams)

    def _running(self) -> list[Stream]:
        with self._lock:
            return list(self._streams())

    def _begin_counts(self, stream: Stream) -> dict[str, int]:
        self._durations[stream.resolved.request.type] = DurationHistogram()
        return self._counts.setdefault(stream.resolved.request.type, dict.fromkeys((*ENDED, "rejected"), 0))

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of streams and calls, and of their limits."""
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
