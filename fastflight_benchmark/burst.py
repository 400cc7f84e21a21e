"""Readers that ask at the same moment, each with a client of its own, and what they measured.

The readers are threads: a client spends its time in gRPC, outside the interpreter's lock. As processes they were not
faster on two cores, but for a single reader of the largest batches, by about a third in a noisy measurement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyarrow import flight

from fastflight.errors import DataError
from fastflight.service.requests import Mock
from fastflight_benchmark import mock_data_service as table

# Readers of a burst that are not at the start by then never will be.
START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request: when it was asked, when its last byte was here, and what came; `error` is empty if that is right."""

    began: float
    ended: float
    bytes: int = 0
    error: str = ""

    @property
    def latency_seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that were asked at the same moment."""

    outcomes: Sequence[Outcome]

    @property
    def seconds(self) -> float:
        """From the first request to the last byte of the last answer."""
        return max(one.ended for one in self.outcomes) - min(one.began for one in self.outcomes)

    @property
    def throughput_mbps(self) -> float:
        """MiB/s of all answers together; what failed counts as nothing."""
        return sum(one.bytes for one in self.outcomes) / table.MIB / self.seconds


class Readers:
    """Clients of several servers, at most `most` at once. Connections are kept between bursts."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="reader")
        self._clients: dict[str, list[flight.FlightClient]] = {}
        self._streams: list[flight.FlightStreamReader] = []
        self._start = threading.Barrier(1)
        self._left = False

    def burst(self, location: str, request: Mock, mode: str, count: int) -> Burst:
        """Ask for `request` `count` times at once and read all answers. `WrongPath` ends everything."""
        clients = self._clients.setdefault(location, [])
        clients.extend(flight.FlightClient(location) for _ in range(count - len(clients)))
        self._streams.clear()
        self._start = threading.Barrier(count, timeout=START_SECONDS)
        futures = [self._pool.submit(self._measure, client, request, mode) for client in clients[:count]]
        return Burst([future.result() for future in futures])

    def _measure(self, client: flight.FlightClient, request: Mock, mode: str) -> Outcome:
        self._start.wait()
        began = time.perf_counter()
        try:
            answer = table.read(client, request, self._opened)
            ended = time.perf_counter()
            table.check(request, answer, mode)
        except (flight.FlightError, pa.ArrowException, OSError, ValueError, DataError) as error:
            return Outcome(began, time.perf_counter(), error=f"{type(error).__name__}: {error}")
        return Outcome(began, ended, answer.bytes)

    def _opened(self, stream: flight.FlightStreamReader) -> None:
        self._streams.append(stream)
        if self._left:
            stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left = True
        if error is not None:
            self._start.abort()
            for stream in list(self._streams):
                stream.cancel()
        self._pool.shutdown()
        for clients in self._clients.values():
            for client in clients:
                client.close()
