"""A process with clients of a cluster: requests one after the other, and viewers of live sessions.

It reads tasks as lines of JSON, and answers each with a line of JSON:

    {"do": "call", "clients": [{"location": URL, "tickets": [TEXT, ...]}, ...], "rows": N, "at": time, "seconds": S}
    {"do": "view", "viewers": [{"location": URL, "ticket": TEXT}, ...]}     answered when each has its schema
    {"do": "seen"}                                                          what each viewer has received so far
    {"do": "leave"}                                                         ends the viewers

A client asks its server for its tickets in turn; each answer must have `rows` rows. `at` is when to begin, by
`time.perf_counter`, which all processes of a machine share. A viewer's rows have the columns `n`, the row's number at
its board, and `ns`, when the board wrote it (`printing_boards`). Imports pyarrow and nothing of fastflight.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from fastflight_benchmark.loading.calling import DO_GET, Calls, call, repeat, together

# The path of a live session's rows.
PATH = "async"
# Viewers that connect at the same time.
CONNECTING = 16


class Viewer:
    """Reads a live session in a thread, until `leave`."""

    def __init__(self, location: str, ticket: str) -> None:
        self._client = flight.FlightClient(location)
        self._ticket = flight.Ticket(ticket.encode())
        self._stream: flight.FlightStreamReader | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.rows = 0
        self.first = self.last = -1
        self.error = ""
        # Milliseconds from a row's writing to its arrival, since they were last taken.
        self._latencies: list[float] = []

    def begin(self) -> None:
        """Ask for the session, and return when it has begun."""
        try:
            self._stream = self._client.do_get(self._ticket)
            _ = self._stream.schema
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self.error = f"{type(error).__name__}: {error}"[:200]
            return
        self._thread.start()

    def leave(self) -> None:
        """End the session."""
        if self._stream is not None:
            self._stream.cancel()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.close()

    def seen(self) -> dict[str, Any]:
        """Return what it has received so far, and the latencies since the last call."""
        latencies, self._latencies = self._latencies, []
        return {
            "rows": self.rows,
            "first": self.first,
            "last": self.last,
            "p50_ms": float(np.median(latencies)) if latencies else None,
            "max_ms": max(latencies, default=None),
            "error": self.error,
        }

    def _read(self) -> None:
        assert self._stream is not None
        try:
            for chunk in self._stream:
                if chunk.data.num_rows:
                    self._take(chunk.data)
        except flight.FlightCancelledError:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self.error = f"{type(error).__name__}: {error}"[:200]

    def _take(self, batch: pa.RecordBatch) -> None:
        now, numbers = time.monotonic_ns(), batch["n"]
        if self.first < 0:
            self.first = numbers[0].as_py()
        self.last = numbers[-1].as_py()
        self.rows += batch.num_rows
        self._latencies.append((now - batch["ns"][0].as_py()) / 1e6)


def requests(task: dict[str, Any]) -> dict[str, Any]:
    """Carry out a task `call`, with a thread and a connection for each client."""

    def one(client: dict[str, Any]) -> Calls:
        with flight.FlightClient(client["location"]) as connection:
            each = itertools.cycle(
                call(DO_GET, connection, ticket.encode(), task["rows"], PATH) for ticket in client["tickets"]
            )
            time.sleep(max(0.0, task["at"] - time.perf_counter()))
            return repeat(lambda: next(each)(), task["at"] + task["seconds"])

    with ThreadPoolExecutor(len(task["clients"])) as pool:
        return together(list(pool.map(one, task["clients"])))


def main() -> None:
    """Carry out tasks until the input ends."""
    viewers: list[Viewer] = []
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        answer: Any = {}
        if task["do"] == "call":
            answer = requests(task)
        elif task["do"] == "view":
            viewers += [Viewer(each["location"], each["ticket"]) for each in task["viewers"]]
            with ThreadPoolExecutor(CONNECTING) as pool:
                list(pool.map(Viewer.begin, viewers))
        elif task["do"] == "seen":
            answer = [viewer.seen() for viewer in viewers]
        else:
            with ThreadPoolExecutor(CONNECTING) as pool:
                list(pool.map(Viewer.leave, viewers))
            viewers = []
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
