"""Worker processes: started side by side, started again when they end, and ended with their front.

A worker that ended takes its streams with it; the next one has the same devices and, if it can be had, the same port,
so that locations which clients were told stay true. It is started at once, and after ever longer pauses while it does
not last.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import IO, Any

import structlog

from fastflight.bridge import Ports
from fastflight.cli.settings import ServeSettings
from fastflight.cli.workers import share
from fastflight.cli.workers.trust import trust
from fastflight.client.connection import Connection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.failure import of_description
from fastflight.concurrency import Governor
from fastflight.errors import FastFlightError, TransportClosed, TransportError, UnknownName, nearest

log = structlog.get_logger(__name__)

COMMAND = (sys.executable, "-m", "fastflight.cli.workers")
# For Python to import all of it on a busy computer.
START_SECONDS = 120.0
# Beyond the drain, counted from when it was told to stop: a server closes in less. What is still there then is killed.
STOP_SECONDS = 20.0
# Before a worker that did not last is started again; doubled each time it does not, up to the second.
FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 30.0
# One that ran for so long has lasted.
LASTING_SECONDS = 60.0
NO_ROOM = "The system has no room for one: end others"
# Actions take as long as the board takes: the limit is the client's, whose end cancels nothing here.
ACTION_SECONDS = 86_400.0


class Worker:
    """One worker: its process, which may be another one later, and the connection to it."""

    def __init__(
        self, number: int, settings: ServeSettings, governor: Governor, credentials: Credentials = NONE
    ) -> None:
        """`governor` is the one of what waits in the front, `credentials` what the front shows."""
        self.governor = governor
        self._credentials = credentials
        self.number = number
        self.settings = settings
        self.bridges: Mapping[str, Ports] = {}
        self.restarts = 0
        self._lock = threading.Lock()
        self._stopping = False
        # Somebody else has its port by now.
        self._elsewhere = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def location(self) -> str:
        """Where it listens; where it last did, while there is none."""
        return self.settings.location

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none that serves."""
        process = self._process
        return process.pid if process is not None and self._connection is not None else None

    def start(self) -> None:
        """Have a process; returns when it serves. Raises what kept it from starting."""
        late = threading.Timer(START_SECONDS, self._kill)
        try:
            late.start()
        except RuntimeError as error:  # Python's word for a system that gives none
            raise TransportError(f"worker {self.number} has no thread", hint=NO_ROOM) from error
        try:
            self._start()
        finally:
            late.cancel()

    def _start(self) -> None:
        with self._lock:
            if self._stopping:
                raise TransportClosed("the server shuts down")
            try:
                process = self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603  # our own program, no shell
            except OSError as error:
                raise TransportError(f"worker {self.number} has no process: {error.strerror}", hint=NO_ROOM) from error
        assert process.stdin is not None and process.stdout is not None
        settings = share.elsewhere(self.settings) if self._elsewhere else self.settings
        _tell(process.stdin, share.encode(settings) + b"\n")
        with process.stdout as said:
            word = _word(said.readline())
        if "location" not in word:
            process.wait()
            _close(process.stdin)
            told = of_description(word.get("error"))
            self._elsewhere = told is not None and told.where == settings.location
            raise told or TransportError(
                f"worker {self.number} ended before it served", hint="Its log is among the server's own"
            )
        self._elsewhere = False
        self.settings = replace(self.settings, location=word["location"])
        self.bridges = {name: Ports(**ports) for name, ports in word["bridges"].items()}
        self._connection = Connection(self.location, ACTION_SECONDS, self._credentials)

    def _kill(self) -> None:
        """It has not begun to serve in time."""
        if self._process is not None:
            self._process.kill()

    def wait(self) -> int:
        """Wait for the process to end; its exit code."""
        process = self._process
        assert process is not None and process.stdin is not None
        code = process.wait()
        self._connection = None
        _close(process.stdin)
        return code

    def stop(self) -> None:
        """Have it end: no new work, running streams first. Does not wait."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is not None and process.stdin is not None:
            _tell(process.stdin, b"stop\n")

    def join(self, timeout: float) -> None:
        """Wait for the process to end; kill it after `timeout` seconds."""
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            log.warning("a worker did not stop and is killed", worker=self.number, pid=process.pid)
            process.kill()
            process.wait()
        _close(process.stdin)

    @contextlib.contextmanager
    def connected(self, where: str) -> Iterator[Connection]:
        """The connection, for a block. Where it breaks because the worker ended, the error says that, and `where`."""
        connection = self._connection
        if connection is None:
            raise self._gone(where)
        try:
            yield connection
        except FastFlightError as error:
            # Errors of the worker have another place: a device, a path, a key.
            if error.where == connection.location:
                raise self._gone(where) from error
            raise

    def _gone(self, where: str) -> TransportClosed:
        return TransportClosed(
            f"worker {self.number}, which has this device, has ended" if where else f"worker {self.number} has ended",
            where=where,
            hint="It is started again: ask again in some seconds",
        )


class Pool:
    """The workers of a front. Close it."""

    def __init__(self, settings: ServeSettings, governor: Governor) -> None:
        """Start them all; raises the first error of one that cannot start, and then there are none."""
        self._devices = settings.devices
        self._drain_seconds = settings.drain_seconds
        self._stopped_at = 0.0
        self._closing = threading.Event()
        shown = trust(settings.access)
        self.workers = [
            Worker(number, each, governor, shown.credentials)
            for number, each in enumerate(share.shares(settings, shown.known))
        ]
        try:
            with ThreadPoolExecutor(len(self.workers), "worker-start") as starting:
                for started in [starting.submit(worker.start) for worker in self.workers]:
                    started.result()
        except BaseException:
            self.close()
            raise
        self._threads = [
            threading.Thread(target=self._keep, args=(worker,), name=f"worker-{worker.number}", daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    def owner(self, device: str) -> Worker:
        """The worker that has `device`; `UnknownName` where none has."""
        if device not in self._devices:
            raise UnknownName("no such device", where=device, hint=nearest(device, self._devices))
        return self.workers[share.owner_of(device, len(self.workers))]

    def names(self) -> list[str]:
        """All devices."""
        return list(self._devices)

    def stats(self) -> list[dict[str, Any]]:
        """For each worker: number, status, process, location, devices, how often it was started again."""
        return [
            {
                "number": worker.number,
                "status": "serving" if worker.pid is not None else "starting",
                "pid": worker.pid,
                "location": worker.location,
                "devices": list(worker.settings.devices),
                "restarts": worker.restarts,
            }
            for worker in self.workers
        ]

    def stop(self) -> None:
        """Have all of them end. Does not wait."""
        if not self._closing.is_set():
            self._stopped_at = time.monotonic()
        self._closing.set()
        for worker in self.workers:
            worker.stop()

    def close(self) -> None:
        """End them; returns when they have."""
        self.stop()
        deadline = self._stopped_at + self._drain_seconds + STOP_SECONDS
        for worker in self.workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, worker: Worker) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            code = worker.wait()
            if self._closing.is_set():
                return
            log.warning("a worker ended", worker=worker.number, exit_code=code, devices=list(worker.settings.devices))
            if time.monotonic() - began >= LASTING_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            while not self._restarted(worker, pause):
                if self._closing.is_set():
                    return
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _restarted(self, worker: Worker, pause: float) -> bool:
        if self._closing.wait(pause):
            return False
        worker.restarts += 1
        try:
            worker.start()
        except FastFlightError as error:
            log.warning("a worker cannot be started", worker=worker.number, error=str(error))
            return False
        log.info("a worker was started again", worker=worker.number, location=worker.location)
        return True


def _word(line: bytes) -> dict[str, Any]:
    """What a worker says; nothing where it ended within it."""
    word: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
    return word


def _tell(pipe: IO[bytes], word: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it has ended, as waiting for it says
        pipe.write(word)
        pipe.flush()


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what it was told last never came
        pipe.close()
