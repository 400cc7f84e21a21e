"""A process that puts load on a server. It reads tasks as lines of JSON, and answers each with a line of JSON.

    {"do": "read", "location": URL, "ticket": BASE64, "count": readers, "at": time}
    {"do": "call", "location": URL, "operation": NAME, "payload": BASE64, "rows": N, "path": PATH,
     "count": connections, "at": time, "seconds": S}

Its first line says that it is ready. `at` is when to begin, by `time.perf_counter`, which all processes of a machine
share. Each of `count` threads has a client and a connection of its own, which are
kept for the next task. The process ends when its input does.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight_benchmark.loading.calling import Calls, call, repeat, together
from fastflight_benchmark.loading.reading import Answer, read


class Load:
    """Keeps clients by location, and a thread for each client that works at the same time."""

    def __init__(self) -> None:
        self._clients: dict[str, list[flight.FlightClient]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._threads = 0

    def do(self, task: dict[str, Any]) -> dict[str, Any]:
        """Carry out one task. `cpu_seconds` of the answer is the processor time that this process used for it."""
        count = int(task["count"])
        clients = self._clients_of(task["location"], count)
        began = time.process_time()
        if task["do"] == "read":
            ticket = base64.b64decode(task["ticket"])
            done = {"answers": self._all(clients, lambda client: _reading(client, ticket, task["at"]))}
        else:
            parts = self._all(clients, lambda client: _calling(client, task))
            done = together(parts)
        return done | {"cpu_seconds": time.process_time() - began}

    def close(self) -> None:
        """End the threads and close the connections."""
        if self._pool is not None:
            self._pool.shutdown()
        for clients in self._clients.values():
            for client in clients:
                client.close()

    def _clients_of(self, location: str, count: int) -> Sequence[flight.FlightClient]:
        clients = self._clients.setdefault(location, [])
        clients.extend(flight.FlightClient(location) for _ in range(count - len(clients)))
        return clients[:count]

    def _all(self, clients: Sequence[flight.FlightClient], work: Callable[[flight.FlightClient], Any]) -> list[Any]:
        if len(clients) > self._threads:
            if self._pool is not None:
                self._pool.shutdown()
            self._threads = len(clients)
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="load")
        return list(self._pool.map(work, clients)) if self._pool is not None else []


def _reading(client: flight.FlightClient, ticket: bytes, at: float) -> dict[str, Any]:
    _wait(at)
    began = time.perf_counter()
    try:
        answer = read(client, ticket)
    except (flight.FlightError, pa.ArrowException, OSError, ValueError) as error:
        return {"began": began, "ended": time.perf_counter(), "error": f"{type(error).__name__}: {error}"}
    ended = time.perf_counter()
    return {"began": began, "ended": ended, "error": "", "answer": to_json(answer)}


def _calling(client: flight.FlightClient, task: dict[str, Any]) -> Calls:
    request = call(task["operation"], client, base64.b64decode(task["payload"]), task["rows"], task["path"])
    _wait(task["at"])
    return repeat(request, task["at"] + task["seconds"])


def _wait(until: float) -> None:
    time.sleep(max(0.0, until - time.perf_counter()))


def to_json(answer: Answer) -> dict[str, Any]:
    """Return the values of an answer, for JSON."""
    return {
        "rows": answer.rows,
        "bytes": answer.bytes,
        "path": answer.path,
        "trailer": dict(answer.trailer),
        "messages": answer.messages,
        "first": answer.first,
        "schema": None if answer.schema is None else base64.b64encode(answer.schema.serialize().to_pybytes()).decode(),
    }


def from_json(values: dict[str, Any]) -> Answer:
    """Return the answer with the values from `to_json`."""
    schema = values["schema"]
    return Answer(
        values["rows"],
        values["bytes"],
        values["path"],
        values["trailer"],
        values["messages"],
        values["first"],
        None if schema is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))),
    )


def main() -> None:
    """Carry out tasks until the input ends."""
    load = Load()
    try:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(load.do(json.loads(line))), flush=True)
    except BrokenPipeError:
        # The parent process was interrupted. Flushing the rest of the buffer must not fail when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        load.close()


if __name__ == "__main__":
    main()
