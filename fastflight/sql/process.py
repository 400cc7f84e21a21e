"""Starts worker processes and keeps them for later queries. POSIX only.

A worker whose query has ended by itself is used again. One that was stopped in the middle is killed. Starting a worker
takes half a second, mostly for importing DuckDB and Arrow, so all workers are kept until the server ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

from fastflight.errors import RequestError, ResourceExhausted, StorageError
from fastflight.extras import needs
from fastflight.sql.frames import Kind, Pipe

# A worker on a busy computer needs some seconds.
START_SECONDS = 60.0
# A process that has closed its pipe has ended, or ends now.
END_SECONDS = 5.0
# How long a query waits for others to end. Most take less than a second.
WAIT_SECONDS = 30.0
# After this time a client may try again.
RETRY_SECONDS = 5.0
# Variables that a program may need to start. A worker gets no other, as queries may find a way to read them.
ENVIRONMENT = frozenset(("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR", "PYTHONPATH"))


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """The limits of each query, and of queries at a time.

    `seconds` is the time that the server works on a query, without the time in which the client does not read.
    """

    memory_bytes: int = 512 << 20
    threads: int = 2
    seconds: float = 60.0
    rows: int = 100_000_000
    queries: int = 4


class Worker:
    """One process and the server's end of its pipe."""

    def __init__(self, limits: SqlLimits) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own program, no shell
                    [
                        *(sys.executable, "-P", "-m", "fastflight.sql.worker"),
                        *(str(theirs.fileno()), str(limits.memory_bytes), str(limits.threads)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    # Arrow's own allocator reserves more address space than the worker may have.
                    env={
                        **{name: os.environ[name] for name in ENVIRONMENT & os.environ.keys()},
                        "ARROW_DEFAULT_MEMORY_POOL": "system",
                    },
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self.pipe = Pipe(ours)

    def wait_ready(self) -> None:
        """Return when the worker waits for a query. `StorageError` if it does not start."""
        try:
            if not self.pipe.waits(START_SECONDS) and self.pipe.receive().kind == Kind.READY:
                return
        except EOFError:
            pass
        raise StorageError("the process for queries does not start", hint="See what the server has printed")

    def exit_code(self) -> int:
        """Return how the process has ended, after its pipe was closed: minus the number of a signal, or a status."""
        self.pipe.close()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return 0

    def close(self) -> None:
        """Kill the process. A thread that waits for the pipe gets `EOFError`."""
        self._process.kill()
        self._process.wait()
        self.pipe.close()


class Workers:
    """The workers of a server, as many as `limits.queries` at a time."""

    def __init__(self, limits: SqlLimits) -> None:
        self.limits = limits
        self._room = threading.BoundedSemaphore(limits.queries)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._closed = False

    def take(self) -> Worker:
        """Return a worker for one query. Call `give_back` or `discard` afterwards."""
        if sys.platform == "win32":
            raise RequestError("SQL needs a server on Linux or macOS", where="type")
        with needs("sql", "SQL"):
            if importlib.util.find_spec("duckdb") is None:
                raise ModuleNotFoundError("duckdb", name="duckdb")
        if not self._room.acquire(timeout=WAIT_SECONDS):
            raise ResourceExhausted(
                f"{self.limits.queries} queries are running",
                scope="sql",
                limit=self.limits.queries,
                retry_after_seconds=RETRY_SECONDS,
                hint="Try again later",
            )
        try:
            with self._lock:
                worker = self._idle.pop() if self._idle else Worker(self.limits)
            try:
                worker.wait_ready()
            except BaseException:
                worker.close()
                raise
            return worker
        except BaseException:
            self._room.release()
            raise

    def give_back(self, worker: Worker) -> None:
        """Take back a worker whose dialogue has ended."""
        with self._lock:
            kept = not self._closed
            if kept:
                self._idle.append(worker)
        if not kept:
            worker.close()
        self._room.release()

    def discard(self, worker: Worker) -> None:
        """End a worker that is in the middle of a dialogue."""
        worker.close()
        self._room.release()

    def close(self) -> None:
        """End the idle workers."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            with contextlib.suppress(OSError):
                worker.close()
