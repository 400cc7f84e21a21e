"""A running stream: who asked for it, how much it has transferred, and whether it is still wanted.

Call `Stream.check` between batches and while you wait: it raises `Stopped` once the client has left, the stream was
cancelled, or the server shuts down. Close the stream with its outcome, which the registry counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fastflight.errors import Stopped
from fastflight.runtime.admission import STALLED_LIVE_SECONDS, AdmissionTicket, Limits
from fastflight.runtime.tracing import Trace, current
from fastflight.service.resolve import ResolvedRequest

# Asking gRPC whether a client has left takes it up to 0.4 ms, as long as sending half a megabyte.
LOOK_SECONDS = 0.2


class Keeping(Protocol):
    """The part of a `StreamRegistry` that its streams use."""

    @property
    def limits(self) -> Limits: ...

    @property
    def draining(self) -> bool: ...

    def has_alone(self, stream: Stream) -> bool: ...

    def tell(self, stream: Stream) -> None: ...

    def closed(self, stream: Stream, outcome: str) -> None: ...

    def count_overdue(self, client: str) -> None: ...


class Stream(AdmissionTicket):
    """One running do_get, do_put or do_exchange, and its admission."""

    # Defaults, which most streams never change: setting fewer attributes makes small requests measurably faster.
    rows = 0
    bytes = 0
    # Bad rows of a file, which are kept out of the answer and counted.
    rejected = 0
    # By `time.perf_counter`, from when it was admitted; 0 before.
    began = 0.0
    # When the batch that its client has not taken yet was offered, by `time.monotonic`; 0 while there is none.
    offered = 0.0
    # Since when the handler waits for the client to send something, by `time.monotonic`; 0 while it does not.
    awaited = 0.0
    # Whether a client that sends nothing still waits for acknowledgements itself; None where it gets none.
    client_waits: Callable[[], bool] | None = None
    why_stop = ""
    # `finished`, `failed` or `cancelled`; a `lasting` stream has one before it closes.
    outcome = ""
    # The name of the identity that asked, if it was authenticated.
    identity = ""
    # The error that it failed with.
    error: BaseException | None = None
    lasting = False
    _drain: Callable[[], None] | None = None
    _stopped: Callable[[], object] | None = None

    def __init__(
        self,
        registry: Keeping,
        asked: ResolvedRequest,
        left: Callable[[], bool],
        who: Callable[[], str],
        in_thread: bool,
    ) -> None:
        self.in_thread = in_thread
        self.asked = asked
        self._who = who
        self._asker: str | None = None
        # The handler's: later work runs in other threads and contexts.
        self.trace: Trace | None = current()
        self._registry = registry
        self._left = left

    def asker(self) -> str:
        """The name of the client. The first call must be made while the handler runs."""
        if self._asker is None:
            self._asker = self._who()
        return self._asker

    @property
    def silent_seconds(self) -> float:
        """How long its client may send nothing when it is its turn."""
        return self._registry.limits.silent_seconds

    @property
    def stalled_seconds(self) -> float:
        """How long its client may take nothing of what it is offered."""
        seconds = self._registry.limits.stalled_seconds
        return seconds if self._drain is None else max(seconds, STALLED_LIVE_SECONDS)

    @property
    def has_connection_alone(self) -> bool:
        """Whether its connection carries nothing else, except streams that are stopped as well."""
        return self._registry.has_alone(self)

    def begin(self) -> None:
        """The stream is admitted."""
        self.began = self._looked = time.perf_counter()

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """Enter this around a wait for what the client sends: it may last `silent_seconds`."""
        self.awaited = time.monotonic()
        try:
            yield
        finally:
            self.awaited = 0.0

    def when_stopped(self, tell: Callable[[], object] | None) -> None:
        """Call `tell`, from any thread, when the stream is stopped: for handlers that wait and cannot `check`."""
        self._stopped = tell
        if self.why_stop and tell is not None:
            tell()

    def stop(self, why: str) -> None:
        """Stop the stream from outside. The first reason counts."""
        self.why_stop = self.why_stop or why
        tell = self._stopped
        if tell is not None:
            tell()

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

    def offer(self) -> None:
        """Something is in front of the client from now on."""
        self.offered = time.monotonic()

    def taken(self) -> None:
        """The client has taken it."""
        self.offered = 0.0

    def count(self, rows: int, size: int) -> None:
        """A batch was sent or taken."""
        self.rows += rows
        self.bytes += size

    def failing(self) -> _Failing:
        """A context that closes the stream if its block raises."""
        return _Failing(self)

    def close(self, outcome: str, error: BaseException | None = None) -> None:
        """Close the stream as `finished`, `failed` or `cancelled`, with its error.

        A `lasting` stream stays open and remembers the outcome.
        """
        self.outcome = self.outcome or outcome
        self.error = self.error or error
        if error is not None:
            self.asker()
        if not self.lasting and not self.left:
            # Logged first: a server that waits for its last stream goes on as soon as that is out.
            self._registry.tell(self)
            self._registry.closed(self, self.outcome)


class _Failing:
    """Closes its stream with what is raised in the block. A class and not a generator, since every call uses one."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        """Nothing has been raised yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._stream.close("cancelled" if isinstance(error, Stopped) else "failed", error)
