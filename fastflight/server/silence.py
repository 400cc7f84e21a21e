"""Clients that are waited for and say nothing.

Flight's Python can neither end a handler that waits in C++ for its client, nor stop waiting. So whoever waits says so
here (`waiting`), and the lookout looks: after `seconds` the stream is stopped, which fails its write on the spot, so
that the device is free and its old file whole, and has the client told. A client that is there ends its side then. From
one that still says nothing the connection is cut, which is all that frees the handler, as soon as nothing else runs on
it: other streams of the same program are not to suffer, and while there are any, their client is no stranger.

A client that is owed word of what it sent is not silent: it may wait for that before it sends more, or says that it was
all, and a board at 115200 baud takes a minute and a half for what waits on the way to it.

The same is done for a stream that was stopped by somebody else: an operator, a server that shuts down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from fastflight.concurrency.lookout import Lookout, Watch
from fastflight.runtime.failure import numbered
from fastflight.runtime.stream import Stream

log = structlog.get_logger(__name__)

# From being told to being cut: a client that is there answers at once, or as soon as its own source gives a batch.
GRACE_SECONDS = 5.0
# Between two looks whether a connection can be cut that others use.
AGAIN_SECONDS = 1.0


def nothing() -> bool:
    """For streams whose client has had all word there is."""
    return False


class Silence:
    """What one stream waits for its client. Use it as a context, for as long as its handler runs."""

    def __init__(self, stream: Stream, lookout: Lookout, cut: Callable[[], int]) -> None:
        """`cut` ends the client's connection if it can be done, and says how many it cut."""
        self._stream = stream
        self._lookout = lookout
        self._cut = cut
        self._seconds = stream.silent_seconds
        # Since when the client is waited for; None while it is not.
        self._since: float | None = None
        # When it was last seen to be owed word.
        self._owed = -math.inf
        self._cut_at: float | None = None
        # Whether the client is owed word of what it has sent.
        self.owes: Callable[[], bool] = nothing
        self._watch = Watch(self._look, lambda: None)

    def begin(self) -> None:
        """From now on it is the client's turn."""
        self._since = self._lookout.clock()

    def end(self) -> None:
        """It has said something, or left."""
        self._since = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for the client."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def __enter__(self) -> Silence:
        self._lookout.add(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._lookout.remove(self._watch)

    def _look(self) -> bool:
        """Whether to go on looking. A look that fails is logged, and the next one comes all the same."""
        try:
            return self._judge()
        except Exception as error:  # an edge: nobody waits for the lookout's thread
            numbered(error, self._stream.trace)
            return True

    def _judge(self) -> bool:
        """Stop the stream of a client that is silent for too long, then cut its connection. False once that is done."""
        since, now = self._since, self._lookout.clock()
        if since is None:
            return True
        if self.owes():
            self._owed = now
        since = max(since, self._owed)
        if not self._stream.why_stop and now - since >= self._seconds:
            log.info("a client is silent", seconds=round(now - since, 1), type=self._stream.asked.request.type)
            self._stream.stop_overdue("writer", f"the client has said nothing for {self._seconds:g} s")
        if not self._stream.why_stop:
            return True
        if self._cut_at is None:
            self._cut_at = now + GRACE_SECONDS
        if now < self._cut_at:
            return True
        self._cut_at = now + AGAIN_SECONDS
        if not self._cut():
            return True
        log.warning("the connection of a silent client is cut", type=self._stream.asked.request.type)
        return False
