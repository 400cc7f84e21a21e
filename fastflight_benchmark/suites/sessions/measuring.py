"""Measures one cell of the suite `sessions`: boards, a server and readers, as processes, for some seconds.

The boards begin to print when all sessions are open. They stop before the other processes end, and the readers wait for
the rest; rows that have not arrived by then are missing. A recording is read completely through the server and compared
with the boards' output.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from fastflight_benchmark.cores import MIB, cpu_seconds, idle_percent
from fastflight_benchmark.printing import printing
from fastflight_benchmark.printing_boards import Options, Printed
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.sessions.reading import BYTES, JSONL, Reader
from fastflight_benchmark.suites.sessions.recorded import Replayed, replayed
from fastflight_benchmark.table import WrongPath
from fastflight_benchmark.worker import Worker

READING = "fastflight_benchmark.suites.sessions.reading"
# Bytes per second at 3 Mbaud, the fastest rate of boards' UARTs and their adapters.
FULL_SPEED = 300_000.0
# A session may leave out the first row, because it cannot know whether the row is complete.
SKIPPED_ROWS = 1
# The pause after opening, until the processes are idle.
SETTLE_SECONDS = 0.5
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Cell:
    """Boards and their readers: `readers` sessions, spread over the boards in turn."""

    part: str
    boards: int
    readers: int
    mode: str
    recorded: bool = False
    # If it is not 0, boards print this much instead of ten rows a second.
    bytes_per_second: float = 0.0
    format: str = JSONL
    # One of the readers stops reading for this long.
    stall_seconds: float = 0.0


def measure(cell: Cell, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure a cell. Yield one row. If a reader stalls, yield one row for the others and one for that reader."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastflight-sessions-")))
        fleet = stack.enter_context(
            printing(Options(cell.boards, bytes_per_second=cell.bytes_per_second, waiting=True))
        )
        file = folder / "fleet.toml"
        file.write_text(fleet.toml())
        arguments = ["serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(file)]
        if cell.recorded:
            arguments += ["--record", "*", "--recordings", str(folder / "recordings")]
        began = time.perf_counter()
        server = stack.enter_context(spawned("fastflight", *arguments))
        readers = stack.enter_context(_readers(server.location, cell))
        opened = time.perf_counter() - began
        fleet.start()
        time.sleep(SETTLE_SECONDS)
        watch = _Watch(server.pid, fleet.pid, readers.pid)
        readers.tell({"do": "begin"})
        used = watch.during(seconds)
        printed = fleet.stop()
        seen = readers.ask({"do": "finish", "ends": _ends(cell, printed)})
        replay = replayed(server.location, printed) if cell.recorded else None
        row = asdict(cell) | {"open_seconds": opened} | used | _replay_columns(replay)
        ends = _numbers(cell, printed, seen)
        if not cell.stall_seconds:
            yield row | _received(cell, printed, ends, seen)
            return
        yield row | _received(cell, printed, ends, seen[1:]) | {"readers": cell.readers - 1, "stall_seconds": 0.0}
        yield row | _received(cell, printed, ends, seen[:1]) | {"readers": 1}


def _ends(cell: Cell, printed: Sequence[Printed]) -> list[int]:
    boards = [printed[number % cell.boards] for number in range(cell.readers)]
    return [board.rows if cell.format == JSONL else board.bytes for board in boards]


def _numbers(cell: Cell, printed: Sequence[Printed], seen: Sequence[dict[str, Any]]) -> list[int]:
    """Return the next number of each board: of its rows, or of its chunks, as counted by its most advanced reader."""
    if cell.format == JSONL:
        return [board.rows for board in printed]
    return [max((each["next"] for each in seen[number :: cell.boards]), default=0) for number in range(cell.boards)]


def _received(
    cell: Cell, printed: Sequence[Printed], ends: Sequence[int], seen: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the columns about received rows or chunks. `ends` has the number after the last one of each board."""
    paths = {each["path"] for each in seen if not each["error"]}
    if paths - {cell.mode}:
        raise WrongPath(f"requested the path {cell.mode!r}, answered on {paths}")
    expected = received = wrong = 0
    for number, each in enumerate(seen):
        board = printed[number % cell.boards]
        received += each["count"]
        wrong += each["wrong"]
        expected += ends[number % cell.boards] - min(each["first"], SKIPPED_ROWS if cell.format == JSONL else 0)
        if cell.format == BYTES and not each["gaps"]:
            wrong += (each["bytes"], each["crc"]) != (board.bytes, board.crc)
    lost = sum(each["lost"] for each in seen)
    times = np.concatenate([np.array(each["times"]) for each in seen]) if seen else np.zeros(0)
    p50, p99, most = np.percentile(times, [50, 99, 100]) if len(times) else [float("nan")] * 3
    errors = sorted({each["error"] for each in seen} - {""})
    return {
        "printed": sum(board.rows for board in printed),
        "expected": expected,
        "received": received,
        "gaps": sum(each["gaps"] for each in seen),
        "told": lost,
        "missing": expected - received - lost,
        "wrong": wrong,
        "p50_ms": p50,
        "p99_ms": p99,
        "most_ms": most,
        "error": "; ".join(errors),
    }


def _replay_columns(replay: Replayed | None) -> dict[str, Any]:
    if replay is None:
        return {"kept_rows": float("nan"), "kept_wrong": float("nan"), "replay_mbps": float("nan")}
    return {"kept_rows": replay.rows, "kept_wrong": replay.wrong, "replay_mbps": replay.bytes / replay.seconds / 1e6}


@contextmanager
def _readers(location: str, cell: Cell) -> Iterator[Worker]:
    """Start the readers of a cell (`reading`) and open all their sessions. If a reader stalls, it is the first one."""
    readers = [
        Reader(f"board-{number % cell.boards}", number % cell.boards, cell.mode, cell.format, 0,
               cell.stall_seconds if number == 0 else 0.0)
        for number in range(cell.readers)
    ]  # fmt: skip
    with Worker(READING) as worker:
        worker.ask({"location": location, "readers": [asdict(reader) for reader in readers]})
        yield worker


class _Watch:
    """Measures the three processes."""

    def __init__(self, server: int, boards: int, readers: int) -> None:
        self._server = psutil.Process(server)
        self._all = {name: psutil.Process(pid) for name, pid in
                     (("server", server), ("boards", boards), ("readers", readers))}  # fmt: skip

    def during(self, seconds: float) -> dict[str, Any]:
        """Measure for `seconds`: the cores of each process, the server's peak memory and threads, and idle cores."""
        cores, began = psutil.cpu_times(), time.perf_counter()
        before = {name: cpu_seconds(process) for name, process in self._all.items()}
        memory = threads = 0
        while (left := began + seconds - time.perf_counter()) > 0:
            memory = max(memory, self._server.memory_info().rss)
            threads = max(threads, self._server.num_threads())
            time.sleep(min(LOOK_SECONDS, left))
        passed = time.perf_counter() - began
        used = {f"{name}_cores": (cpu_seconds(each) - before[name]) / passed for name, each in self._all.items()}
        return {
            "seconds": passed,
            **used,
            "idle_percent": idle_percent(cores, psutil.cpu_times()),
            "server_mb": memory / MIB,
            "threads": threads,
        }
