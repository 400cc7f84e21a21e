"""A thread that keeps recordings small and ready to read.

It deletes what retention no longer covers, compacts the tail, and has the lines in new Parquet files parsed. It has the
first lines of new recordings read before somebody lists them: of thousands, that takes seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import structlog

from fastflight.errors import Stopped
from fastflight.log import Store, compact

if TYPE_CHECKING:
    from fastflight.cluster.shared_recordings import SharedRecordings

log = structlog.get_logger(__name__)

# How often the store deletes what retention no longer covers, and compacts its tail.
TIDY_SECONDS = 60.0
# Compacting shares the interpreter's lock with the reading of every line, so it rests after each WORK_SECONDS of
# processor time, for REST_PER_WORK times as long. With a fifth of a core it compacts what a thousand boards record.
WORK_SECONDS = 0.005
REST_PER_WORK = 4.0
Parse = Callable[[str, Callable[[], object]], object]
Look = Callable[[str], object]


class Tidying:
    """A thread that sweeps and compacts a store every `TIDY_SECONDS`.

    With `shared` recordings it sweeps those as well, and compacts their copy: then the store is only a buffer. `parse`
    is called with the name of each recording that has a new file, and with a function to call now and then; `look` is
    called once with the name of each recording.
    """

    def __init__(
        self,
        store: Store,
        shared: SharedRecordings | None = None,
        parse: Parse = lambda *_: None,
        look: Look = lambda _: None,
    ) -> None:
        self._store = store
        self._shared = shared
        self._parse = parse
        self._look = look
        # The logs of the recordings that `look` was called with.
        self._seen: set[str] = set()
        self._closing = threading.Event()
        # The thread's processor time when it began, or at the end of its last rest.
        self._rested_at = 0.0
        # The last failure, so that the same one is logged only once.
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="recordings-tidying", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. A compaction in progress is abandoned, and what it has not replaced stays as it is."""
        self._closing.set()
        if self._shared is not None:
            self._shared.end_sweeps()
        self._thread.join()

    @property
    def _kept(self) -> Store:
        """The store whose old rows are read, and so compacted."""
        return self._store if self._shared is None else self._shared.store

    def _run(self) -> None:
        while not self._closing.wait(TIDY_SECONDS):
            self.tidy()

    def tidy(self) -> None:
        """Delete what retention no longer covers, and compact the tail if that is worth it.

        A failure is logged, and the next call tries again.
        """
        self._rested_at = time.thread_time()
        try:
            swept = self._store.sweep()
            if self._shared is not None:
                swept += self._shared.sweep()
            made = compact(self._kept, self._rest)
            for log_name in dict.fromkeys(made.values()):
                self._parse(self._recording_of(log_name), self._rest)
            for log_name in self._kept.names():
                if log_name not in self._seen:
                    self._look(self._recording_of(log_name))
                    self._seen.add(log_name)
                    self._rest()
        except (Stopped, CancelledError):
            return
        except Exception as error:  # the edge of the thread: what fails now may work in a minute
            if str(error) != self._trouble:
                log.warning("recordings cannot be tidied", error=str(error), kind=type(error).__name__)
            self._trouble = str(error)
            return
        self._trouble = ""
        if swept or made:
            log.info("recordings tidied", swept=swept, compacted=len(made))

    def _recording_of(self, log_name: str) -> str:
        return log_name if self._shared is None else self._shared.device_of(log_name)

    def _rest(self) -> None:
        """Rest if WORK_SECONDS have been worked since the last rest. `Stopped` once `close` is called."""
        # Processor time, not wall time: if many threads want the interpreter's lock, most of that is waiting.
        worked = time.thread_time() - self._rested_at
        due = worked >= WORK_SECONDS
        if self._closing.wait(worked * REST_PER_WORK) if due else self._closing.is_set():
            raise Stopped("the recordings are closed")
        if due:
            self._rested_at = time.thread_time()
