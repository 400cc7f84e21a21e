"""Processes that load servers, and what they measured when they all worked at the same moment.

Readers in one process share its interpreter's lock: a slow reader makes a slow server look good. So the load is spread
over twice as many processes as there are cores; up to that many readers have one each, and more cannot use more cores.
They are apart from the servers and from the process that runs the suite, which only waits.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fastflight.errors import TransportError
from fastflight_benchmark.cores import MIB
from fastflight_benchmark.loading.process import from_json
from fastflight_benchmark.loading.reading import Answer

MODULE = "fastflight_benchmark.loading.process"
PROCESSES = 2 * (os.cpu_count() or 1)
# From the word to go until it is gone: time for all processes to hear it.
LEAD_SECONDS = 0.03
# A process that was told to end reads its input's end between two tasks; one that does not is killed.
STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One reading: when it was asked, when its last byte was here, and what came; `error` is empty if that is right."""

    began: float
    ended: float
    answer: Answer | None = None
    error: str = ""

    @property
    def latency_seconds(self) -> float:
        return self.ended - self.began

    @property
    def first_batch_seconds(self) -> float:
        """From the request to the first row; NaN without one."""
        return self.answer.first - self.began if self.answer else float("nan")

    @property
    def bytes(self) -> int:
        """What came, if it was right."""
        return self.answer.bytes if self.answer and not self.error else 0


@dataclass(frozen=True, slots=True)
class Burst:
    """Readings that were asked at the same moment, and the processor time of the processes that read."""

    outcomes: Sequence[Outcome]
    cpu_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """From the first request to the last byte of the last answer."""
        return max(one.ended for one in self.outcomes) - min(one.began for one in self.outcomes)

    @property
    def throughput_mbps(self) -> float:
        """MiB/s of all answers together; what failed counts as nothing."""
        return sum(one.bytes for one in self.outcomes) / MIB / self.seconds


@dataclass(frozen=True, slots=True)
class Calls:
    """Small requests of all connections: seconds of each, from the first to the end of the last, and what failed."""

    latencies: Sequence[float]
    seconds: float
    errors: Counter[str]
    cpu_seconds: float = 0.0


class Loaders:
    """Processes that read and call. They start with the first work, and end with the context."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._most = processes
        self._running: list[subprocess.Popen[str]] = []

    def read(self, location: str, ticket: bytes, readers: int) -> Burst:
        """Ask for `ticket` `readers` times at once and read all answers."""
        told = self._all(readers, {"do": "read", "location": location, "ticket": base64.b64encode(ticket).decode()})
        outcomes = [
            Outcome(one["began"], one["ended"], from_json(one["answer"]) if "answer" in one else None, one["error"])
            for part in told
            for one in part["answers"]
        ]
        return Burst(outcomes, sum(part["cpu_seconds"] for part in told))

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
        token: str = "",
        roots: str = "",
    ) -> Calls:
        """Small requests for so many seconds, one after the other on each of `connections`.

        `token` is shown with each, `roots` (PEM) are whom the connections trust, where they are given.
        """
        told = self._all(
            connections,
            {
                "do": "call",
                "location": location,
                "operation": operation,
                "payload": base64.b64encode(payload).decode(),
                "rows": rows,
                "path": path,
                "seconds": seconds,
                "token": token,
                "roots": roots,
            },
        )
        errors: Counter[str] = Counter()
        for part in told:
            errors.update(part["errors"])
        return Calls(
            [latency for part in told for latency in part["latencies"]],
            max(part["ended"] for part in told) - min(part["began"] for part in told),
            errors,
            sum(part["cpu_seconds"] for part in told),
        )

    def _all(self, count: int, task: dict[str, Any]) -> list[dict[str, Any]]:
        """`count` threads' worth of work, spread over the processes."""
        shares = [len(range(place, count, self._most)) for place in range(min(count, self._most))]
        before = len(self._running)
        while len(self._running) < len(shares):
            self._running.append(_started())  # one by one: an interrupt must find those that there are
        for process in self._running[before:]:
            _hear(process)
        at = time.perf_counter() + LEAD_SECONDS
        working = self._running[: len(shares)]
        for process, share in zip(working, shares, strict=True):
            _tell(process, task | {"count": share, "at": at})
        return [_hear(process) for process in working]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._running:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended, with something unread
                process.stdin.close()
            if error is not None:
                process.kill()
        for process in self._running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the process that runs the suite, which ends this one
    )


def _tell(process: subprocess.Popen[str], task: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise _gone() from error


def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise _gone()
    told: dict[str, Any] = json.loads(line)
    return told


def _gone() -> TransportError:
    return TransportError("a process that loads the server has ended", where=MODULE, hint="Its error stands above")
