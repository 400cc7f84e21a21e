"""Starts worker processes and keeps them for later queries of the same client. POSIX only.

A worker whose query has ended by itself is used again, but never for a client with another name: a query may have taken
over the process. One that was stopped in the middle is killed. Starting a worker takes half a second, mostly for
importing DuckDB and Arrow, so workers are kept until the server ends, or another client needs their place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError, ResourceExhausted, StorageError
from fastflight.extras import needs
from fastflight.runtime.admission import Admission, AdmissionTicket, Limits
from fastflight.sql.folder import WorkerFolder
from fastflight.sql.frames import Kind, Pipe

# A worker on a busy computer needs some seconds.
START_SECONDS = 60.0
# A process that has closed its pipe has ended, or ends now.
END_SECONDS = 5.0
# How long a query waits for others to end. Most take less than a second.
WAIT_SECONDS = 30.0
# Each of them holds a thread.
MAX_WAITING = 64
# After this time a client may try again.
RETRY_SECONDS = 5.0
# What a frame of a worker may hold beside one row: its framing. All other frames are smaller than this.
SPARE_FRAME_BYTES = 8 << 20
# Variables that a program may need to start. A worker gets no other, as queries may find a way to read them.
ENVIRONMENT = frozenset(("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR", "PYTHONPATH"))


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """The limits of each query, and of queries at a time.

    `seconds` is the time that the server works on a query, without the time in which the client does not read.
    `row_bytes` is the size of one row of a result.
    """

    memory_bytes: int = 512 << 20
    threads: int = 2
    seconds: float = 60.0
    rows: int = 100_000_000
    row_bytes: int = 16 << 20
    queries: int = 4


class Worker:
    """One process and the server's end of its pipe."""

    def __init__(self, limits: SqlLimits, owner: str, folder: Path) -> None:
        """`owner` is the name of the client. The worker's own folder is made in `folder`."""
        self.owner = owner
        self.folder = WorkerFolder(folder)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own program, no shell
                    [
                        *(sys.executable, "-P", "-m", "fastflight.sql.worker"),
                        *map(str, (theirs.fileno(), limits.memory_bytes, limits.threads, limits.row_bytes)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=self.folder.path,
                    # Arrow's own allocator reserves more address space than the worker may have.
                    env={
                        **{name: os.environ[name] for name in ENVIRONMENT & os.environ.keys()},
                        "ARROW_DEFAULT_MEMORY_POOL": "system",
                    },
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                self.folder.remove()
                raise
        self.pipe = Pipe(ours.detach(), limits.row_bytes + SPARE_FRAME_BYTES)
        # The room of the query that it runs.
        self.ticket = AdmissionTicket()

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
        self.folder.remove()


class Workers:
    """The workers of a server, as many as `limits.queries` at a time.

    Queries wait in a queue. A client that has proved its name leaves one worker to the others.
    """

    def __init__(self, limits: SqlLimits, folder: Path | None = None) -> None:
        """`folder` is that of the recordings, which need not exist."""
        self.limits = limits
        self._folder = folder
        self._admission = Admission(
            Limits(
                streams=limits.queries,
                per_identity=max(1, limits.queries - 1),
                waiting=MAX_WAITING,
                wait_seconds=WAIT_SECONDS,
            )
        )
        self._anonymous = itertools.count()
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._closed = False

    def take(self, identity: Identity) -> Worker:
        """Return a worker for one query. Call `give_back` or `discard` afterwards.

        `ResourceExhausted` if none is free in time, `Stopped` if the server shuts down.
        """
        if sys.platform == "win32":
            raise RequestError("SQL needs a server on Linux or macOS", where="type")
        with needs("sql", "SQL"):
            if importlib.util.find_spec("duckdb") is None:
                raise ModuleNotFoundError("duckdb", name="duckdb")
        # Nobody knows which queries without a name are those of one client.
        name = f"{next(self._anonymous)}" if identity is ANYBODY else f"identity {identity.name}"
        ticket = AdmissionTicket()
        try:
            self._admission.acquire(ticket, None, lambda: name, lambda: False)
        except ResourceExhausted as error:
            own = " of this client" if error.scope == "identity" else ""
            raise ResourceExhausted(
                f"{error.limit} queries{own} are running",
                scope="sql",
                limit=error.limit,
                retry_after_seconds=RETRY_SECONDS,
                hint="Try again later",
            ) from None
        try:
            worker = self._idle_or_new("" if identity is ANYBODY else identity.name)
            worker.ticket = ticket
            try:
                worker.wait_ready()
            except BaseException:
                worker.close()
                raise
            return worker
        except BaseException:
            self._admission.release(ticket)
            raise

    def _idle_or_new(self, owner: str) -> Worker:
        """Return a worker of this client, which may still be starting."""
        with self._lock:
            for worker in self._idle:
                if worker.owner == owner:
                    self._idle.remove(worker)
                    return worker
            # As many processes as there may be queries: those of other clients give way. This query counts already.
            ended = self._idle[: max(0, len(self._idle) + len(self._admission.streams) - self.limits.queries)]
            del self._idle[: len(ended)]
        for worker in ended:
            worker.close()
        folder = self._folder if self._folder is not None and self._folder.is_dir() else Path(tempfile.gettempdir())
        return Worker(self.limits, owner, folder)

    def give_back(self, worker: Worker) -> None:
        """Take back a worker whose dialogue has ended."""
        worker.folder.clear()
        ticket = worker.ticket  # another query may have the worker as soon as it is idle
        with self._lock:
            kept = not self._closed
            if kept:
                self._idle.append(worker)
        if not kept:
            worker.close()
        self._admission.release(ticket)

    def discard(self, worker: Worker) -> None:
        """End a worker that is in the middle of a dialogue."""
        worker.close()
        self._admission.release(worker.ticket)

    def close(self) -> None:
        """End the idle workers. Queries that wait for one get `Stopped`."""
        self._admission.close()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            with contextlib.suppress(OSError):
                worker.close()
