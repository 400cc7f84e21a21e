"""A running stream: its client, how much it has transferred, and whether it is still wanted.

Call `Stream.check` between batches and while you wait. It raises `Stopped` once the client has left, the stream was
cancelled, or the server shuts down. Close the stream with its outcome, which the registry counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastflight.errors import Stopped
from fastflight.runtime.admission import STALLED_LIVE_SECONDS, AdmissionTicket
from fastflight.runtime.tracing import Trace, current
from fastflight.service.resolve import ResolvedRequest

if TYPE_CHECKING:
    from fastflight.runtime.stream_registry import StreamRegistry

# How often a stream checks for its client. That takes gRPC up to 0.4 ms, as long as sending half a megabyte or several
# rows of a live session.
LOOK_SECONDS = 1.0


class Stream(AdmissionTicket):
    """One running do_get, do_put or do_exchange, or a stream of another edge. It is its own admission ticket."""

    # Defaults in the class, which most streams never change: setting fewer attributes makes small requests faster.
    rows = 0
    bytes = 0
    # The number of bad rows of a file, which are left out of the answer.
    rejected = 0
    # When it was admitted, by `time.perf_counter`; 0 before.
    began = 0.0
    # When it last checked for its client, by `time.perf_counter`.
    looked = 0.0
    # When the batch that the client has not taken yet was offered, by `time.monotonic`; 0 while there is none.
    offered = 0.0
    # Since when the handler waits for the client to send something, by `time.monotonic`; 0 while it does not.
    awaited = 0.0
    # Returns whether the client waits for the server, and so need not send; None while no upload runs.
    client_waits: Callable[[], bool] | None = None
    why_stop = ""
    # `finished`, `failed` or `cancelled`; a `lasting` stream has one before it closes.
    outcome = ""
    # The name of the client's identity, if it was authenticated.
    identity = ""
    # The error that it failed with.
    error: BaseException | None = None
    # Whether it stays registered after `close`.
    lasting = False
    _drain: Callable[[], None] | None = None
    _on_stop: Callable[[], object] | None = None

    def __init__(
        self,
        registry: StreamRegistry,
        resolved: ResolvedRequest,
        has_left: Callable[[], bool],
        client_name: Callable[[], str],
        in_thread: bool,
    ) -> None:
        self.in_thread = in_thread
        self.resolved = resolved
        self._find_client_name = client_name
        self._client_name: str | None = None
        # The trace of the handler: later work runs in other threads and contexts.
        self.trace: Trace | None = current()
        self._registry = registry
        self._has_left = has_left

    def client_name(self) -> str:
        """Return the name of the client. The first call must be made while the handler runs."""
        if self._client_name is None:
            self._client_name = self._find_client_name()
        return self._client_name

    @property
    def silent_seconds(self) -> float:
        """How long its client may send nothing while the handler waits for it."""
        return self._registry.limits.silent_seconds

    @property
    def stalled_seconds(self) -> float:
        """How long its client may leave a batch unread."""
        seconds = self._registry.limits.stalled_seconds
        return seconds if self._drain is None else max(seconds, STALLED_LIVE_SECONDS)

    @property
    def has_connection_alone(self) -> bool:
        """Whether its connection carries nothing else, except streams that are stopped as well."""
        return self._registry.has_connection_alone(self)

    def begin(self) -> None:
        """Start the clock: the stream is admitted."""
        self.began = self.looked = time.perf_counter()

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """A context for waiting until the client sends something.

        If the wait lasts longer than `silent_seconds`, the stream may be stopped (`server.deadlines`).
        """
        self.awaited = time.monotonic()
        try:
            yield
        finally:
            self.awaited = 0.0

    def when_stopped(self, callback: Callable[[], object] | None) -> None:
        """Have `callback` called when the stream is stopped, from any thread: for handlers that cannot `check`.

        It is called at once if the stream is stopped already. None removes it.
        """
        self._on_stop = callback
        if self.why_stop and callback is not None:
            callback()

    def stop(self, why: str) -> None:
        """Stop the stream from outside. The first reason counts."""
        self.why_stop = self.why_stop or why
        callback = self._on_stop
        if callback is not None:
            callback()

    def stop_overdue(self, client: str, why: str) -> None:
        """Stop the stream because its client, a `reader` or a `writer`, has exceeded its time."""
        self._registry.count_overdue(client)
        self.stop(why)

    def when_draining(self, drain: Callable[[], None]) -> None:
        """Mark a live stream: `drain` makes it end by itself when the server shuts down."""
        self._drain = drain
        if self._registry.draining:
            drain()

    def drain(self) -> None:
        """End a live stream because the server shuts down. Other streams go on."""
        if self._drain is not None:
            self._drain()

    def check(self) -> bool:
        """Return True while the stream is wanted; else raise `Stopped`."""
        if self.why_stop:
            raise Stopped(self.why_stop, hint="Ask again")
        if self._has_left():
            raise Stopped("the client has left")
        return True

    def passing(self) -> bool:
        """Do what `check` does, at most once every `LOOK_SECONDS`. Call it after each batch, and while you wait."""
        now = time.perf_counter()
        if self.why_stop or now - self.looked >= LOOK_SECONDS:
            self.looked = now
            self.check()
        return True

    def offer(self) -> None:
        """Note that a message now waits for the client to read it."""
        self.offered = time.monotonic()

    def taken(self) -> None:
        """Note that the client has read the message."""
        self.offered = 0.0

    def count(self, rows: int, size: int) -> None:
        """Count a batch that was sent or received."""
        self.rows += rows
        self.bytes += size

    def close(self, outcome: str, error: BaseException | None = None) -> None:
        """Close the stream as `finished`, `failed` or `cancelled`, with its error.

        A `lasting` stream stays registered and remembers the outcome. Close it again when it no longer lasts.
        """
        self.outcome = self.outcome or outcome
        self.error = self.error or error
        if error is not None:
            self.client_name()
        if not self.lasting and not self.released:
            # Logged first: a server that waits for its last stream goes on as soon as that is removed.
            self._registry.log_end(self)
            self._registry.remove(self, self.outcome)


class ClosedOnFailure:
    """A context that closes a stream if its block raises."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._stream.close("cancelled" if isinstance(error, Stopped) else "failed", error)
