"""Spreads load over several processes, which begin at the same moment, and adds up what they measured.

Readers in one process share its interpreter's lock, so a slow reader would make the server look slow. There are twice
as many processes as cores. They are separate from the servers, and from the process that runs the suite, which only
waits.
"""

from __future__ import annotations

import base64
import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fastflight.errors import DataError
from fastflight_benchmark.engine import MIB
from fastflight_benchmark.loading.process import from_json
from fastflight_benchmark.loading.reading import Answer
from fastflight_benchmark.processes import Worker

MODULE = "fastflight_benchmark.loading.process"
PROCESSES = 2 * (os.cpu_count() or 1)
# All processes begin this long after the task is sent, so that each has read it by then.
LEAD_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Outcome:
    """One read: when it was requested, when its last byte arrived, its answer, or the error."""

    began: float
    ended: float
    answer: Answer | None = None
    error: str = ""

    @property
    def latency_seconds(self) -> float:
        return self.ended - self.began

    @property
    def first_batch_seconds(self) -> float:
        """Seconds from the request to the first row; NaN without rows."""
        return self.answer.first - self.began if self.answer else float("nan")

    @property
    def correct(self) -> Answer:
        """The answer. `DataError` if there was an error."""
        if self.answer is None:
            raise DataError(self.error, where="an answer")
        return self.answer


@dataclass(frozen=True, slots=True)
class Burst:
    """Reads that began at the same moment, and the processor time of the reading processes."""

    outcomes: Sequence[Outcome]
    cpu_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the first request to the last byte of the last answer."""
        return max(one.ended for one in self.outcomes) - min(one.began for one in self.outcomes)

    @property
    def throughput_mbps(self) -> float:
        """MiB/s of all answers together. `DataError` if one failed."""
        return sum(one.correct.bytes for one in self.outcomes) / MIB / self.seconds


@dataclass(frozen=True, slots=True)
class Calls:
    """The small requests of all connections: seconds of each, seconds from first to last, and the errors."""

    latencies: Sequence[float]
    seconds: float
    errors: Counter[str]
    cpu_seconds: float = 0.0


class Loaders:
    """The processes that load a server. They start with the first task, and end with the context."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._limit = processes
        self._running: list[Worker] = []
        self._stack = contextlib.ExitStack()

    def read(self, location: str, ticket: bytes, readers: int) -> Burst:
        """Request `ticket` `readers` times at once and read all answers."""
        parts = self._all(readers, {"do": "read", "location": location, "ticket": base64.b64encode(ticket).decode()})
        outcomes = [
            Outcome(one["began"], one["ended"], from_json(one["answer"]) if "answer" in one else None, one["error"])
            for part in parts
            for one in part["answers"]
        ]
        return Burst(outcomes, sum(part["cpu_seconds"] for part in parts))

    def call(
        self,
        location: str,
        operation: str,
        payload: bytes,
        *,
        rows: int,
        path: str,
        connections: int,
        seconds: float,
    ) -> Calls:
        """Repeat a small request for `seconds` on each of `connections`, each after the answer to the last one."""
        parts = self._all(
            connections,
            {
                "do": "call",
                "location": location,
                "operation": operation,
                "payload": base64.b64encode(payload).decode(),
                "rows": rows,
                "path": path,
                "seconds": seconds,
            },
        )
        errors: Counter[str] = Counter()
        for part in parts:
            errors.update(part["errors"])
        return Calls(
            [latency for part in parts for latency in part["latencies"]],
            max(part["ended"] for part in parts) - min(part["began"] for part in parts),
            errors,
            sum(part["cpu_seconds"] for part in parts),
        )

    def _all(self, count: int, task: dict[str, Any]) -> list[dict[str, Any]]:
        """Spread the work of `count` threads over the processes."""
        shares = [len(range(place, count, self._limit)) for place in range(min(count, self._limit))]
        before = len(self._running)
        while len(self._running) < len(shares):
            # One at a time, so that Ctrl-C in between ends the processes that were started so far.
            self._running.append(self._stack.enter_context(Worker(MODULE)))
        for worker in self._running[before:]:
            worker.hear()
        at = time.perf_counter() + LEAD_SECONDS
        working = self._running[: len(shares)]
        for worker, share in zip(working, shares, strict=True):
            worker.tell(task | {"count": share, "at": at})
        return [worker.hear() for worker in working]

    def __enter__(self) -> Self:
        self._stack.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
