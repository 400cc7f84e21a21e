"""Asks, for readers that wait, whether what they wait for is still wanted: one thread for all of them.

A reader that asked by itself would have to wake for it, and hundreds of threads that wake often cost more than the
question. Nothing runs while nobody waits.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

# A client that has left is to be noticed within 50 ms: this, and a round of asking.
ROUND_SECONDS = 0.04
# Of a core, for asking: above it, with some hundreds of readers, rounds are further apart.
MOST_SHARE = 0.2
# <sys/prctl.h>
PR_SET_TIMERSLACK = 29


class Watch:
    """One reader that waits: `told` is called, once, when it is in vain, from the lookout's thread.

    `why` is then what `still_wanted` raised, or None if it said no.
    """

    def __init__(self, still_wanted: Callable[[], bool], told: Callable[[], object]) -> None:
        self._still_wanted = still_wanted
        self._told = told
        self._asking = threading.Lock()
        self._over = False
        self.in_vain = False
        self.why: BaseException | None = None

    def ask(self) -> None:
        """Ask once more."""
        with self._asking:
            if self._over:
                return
            try:
                self.in_vain = not self._still_wanted()
            except BaseException as error:
                self.in_vain, self.why = True, error
            self._over = self.in_vain
            if self.in_vain:
                self._told()

    def end(self) -> None:
        """The reader waits no more. Once this returns nobody asks: what would be asked may be gone then."""
        with self._asking:
            self._over = True


class Lookout:
    """The readers that wait, and the thread, called `name`, which begins with the first of them."""

    def __init__(self, name: str = "lookout", clock: Callable[[], float] = time.monotonic) -> None:
        # What those go by who are to be told after a time.
        self.clock = clock
        self._changed = threading.Condition()
        self._watches: set[Watch] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def add(self, watch: Watch) -> None:
        """From now on it is asked every `ROUND_SECONDS`, or less often where there are many."""
        with self._changed:
            if self._closed:
                return
            self._watches.add(watch)
            if self._thread.ident is None:
                self._thread.start()
            self._changed.notify()

    def remove(self, watch: Watch) -> None:
        """The reader waits no more."""
        with self._changed:
            self._watches.discard(watch)
        watch.end()

    def close(self) -> None:
        """Ask nobody any more, and end the thread. Does nothing the second time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        _wake_in_time()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watches or self._closed)
                if self._closed:
                    return
                watches = list(self._watches)
            begun = time.thread_time()
            for watch in watches:
                try:
                    watch.ask()
                except Exception:  # an edge: the other readers are to be asked for all the same
                    log.exception("a reader could not be told that it waits in vain")
                time.sleep(0)  # a round of hundreds would keep the interpreter from all other threads
            pause = pause_after(time.thread_time() - begun)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause)


def pause_after(spent: float) -> float:
    """Seconds until the next round, where one took `spent` seconds of processor time."""
    return max(ROUND_SECONDS, spent / MOST_SHARE - spent)


def _wake_in_time() -> None:
    """Have this thread's waits end when they should.

    gRPC waits for no time at all when it is asked whether a client has left, and keeps the interpreter meanwhile. Linux
    lets a wait last up to 50 us longer than it was asked to, which is three times what the question takes by itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
