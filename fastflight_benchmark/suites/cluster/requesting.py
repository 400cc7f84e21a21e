"""Requests of clients that ask any server: how many a second, with 1, 2 and 4 servers and with one that stands alone.

Each request reads rows that a board has printed before and its owner still has in memory, so no board limits it. The
clients ask all servers and all boards alike; what they ask a server that does not own the board is passed on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastflight.errors import DataError
from fastflight_benchmark.suites.cluster.stage import ALONE, LOOK_SECONDS, Stage, stage
from fastflight_benchmark.worker import Worker

MODULE = "fastflight_benchmark.suites.cluster.client"
BOARDS, ROWS_PER_SECOND = 16, 200.0
# Of one request: few, which shows what a request costs, and many, which shows what rows cost. A request for more rows
# than the owner has in memory would wait for the board: it keeps about 1,000 rows that came one by one.
FEW, MANY = 10, 400
# Clients in each of the processes, whose number is that of the cores of a small computer, doubled.
CLIENTS, PROCESSES = 4, 4
# All processes have read their task by then.
LEAD_SECONDS = 0.3
WARM_UP_SECONDS = 0.5
# For the servers to share the boards out. After a join they move one after another.
PLACE_SECONDS = 120.0
COLUMNS_OF_RAW = [
    "servers", "rows", "run", "requests_per_second", "rows_per_second", "p50_ms", "passed_on", "server_cpu_us",
    "memory_per_server", "requests", "failed", "error",
]  # fmt: skip
COLUMNS = {"board": "int64", "n": "int64", "ns": "int64"}


def ticket(board: str, **keys: Any) -> str:
    """Return a request for the rows of a board."""
    return json.dumps({"type": "device.session", "device": board, "format": "jsonl", "schema": COLUMNS, **keys})


def measure(servers: int, seconds: float, runs: int, workers: Sequence[Worker]) -> list[dict[str, Any]]:
    """Measure with so many servers; 0 is one without a cluster."""
    found = []
    with stage(BOARDS, ROWS_PER_SECOND, servers) as running:
        running.add(*([f"s{number}" for number in range(servers)] or [ALONE]))
        _, missing = running.wait(running.placed(), PLACE_SECONDS)
        if missing:
            raise DataError(f"{missing} of {BOARDS} devices were not placed", where=f"{servers} servers")
        running.start_boards()
        while min(printed.rows for printed in running.printed()) < 2 * MANY:
            time.sleep(LOOK_SECONDS)
        running.stop_boards()
        for rows in (FEW, MANY):
            ask(running, workers, rows, WARM_UP_SECONDS)
            for run in range(1, runs + 1):
                before = running.used()
                answer = ask(running, workers, rows, seconds)
                after = running.used()
                each = max(1, answer["requests"] + answer["failed"])
                used = {
                    "server_cpu_us": 1e6 * (after.servers_cpu - before.servers_cpu) / each,
                    "memory_per_server": after.servers_memory / len(running.servers),
                }
                found.append({"servers": servers, "rows": rows, "run": run} | answer | used)
    return found


def ask(running: Stage, workers: Sequence[Worker], rows: int, seconds: float) -> dict[str, Any]:
    """Load the servers. Return the figures of all clients together."""
    tickets = [ticket(board, since_seconds=3600, limit_rows=rows) for board in running.boards]
    at = time.perf_counter() + LEAD_SECONDS
    for place, worker in enumerate(workers):
        # Each begins with another server and another board.
        numbers = range(place * CLIENTS, (place + 1) * CLIENTS)
        clients = [
            {"location": running.location(number), "tickets": tickets[number % BOARDS :] + tickets[: number % BOARDS]}
            for number in numbers
        ]
        worker.tell({"do": "call", "clients": clients, "rows": rows, "at": at, "seconds": seconds})
    parts = [worker.hear() for worker in workers]
    latencies = [latency for part in parts for latency in part["latencies"]]
    errors = {error: count for part in parts for error, count in part["errors"].items()}
    if wrong := [error for error in errors if error.startswith("WrongAnswer")]:
        raise DataError(wrong[0], where="a live session")
    passed = max(part["ended"] for part in parts) - min(part["began"] for part in parts)
    owners = running.owners()
    asked = [(name, board) for name in running.servers for board in running.boards]
    return {
        "requests_per_second": len(latencies) / passed,
        "rows_per_second": rows * len(latencies) / passed,
        "p50_ms": 1000 * float(np.median(latencies)) if latencies else float("nan"),
        "passed_on": sum(owners.get(board) != name for name, board in asked) / len(asked),
        "requests": len(latencies),
        "failed": sum(errors.values()),
        "error": next(iter(errors), ""),
    }
