"""One cell of the suite `sessions`: boards, a server and readers as processes, watched for some seconds.

The boards begin when all sessions are open. They stop printing before anything ends, and the readers wait for what they
have not seen yet: what is missing then is missing. A recording is read back through the server, all of it, and compared
with what the boards printed.
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
from fastflight_benchmark.mock_data_service import WrongPath
from fastflight_benchmark.printing import printing
from fastflight_benchmark.printing_boards import Options, Printed
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.sessions.reading import BYTES, JSONL, Reader
from fastflight_benchmark.suites.sessions.recorded import Replayed, replayed
from fastflight_benchmark.worker import Worker

READING = "fastflight_benchmark.suites.sessions.reading"
# 3 Mbaud: the fastest that boards' UARTs and their adapters do.
FULL_SPEED = 300_000.0
# Of a board's first row a session may not know that it is whole, and begin with the next one.
NOT_KNOWN = 1
# For what opening started to come to rest.
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
    # Instead of ten rows a second.
    bytes_per_second: float = 0.0
    format: str = JSONL
    # One of the readers stops for so long.
    stall_seconds: float = 0.0


def measure(cell: Cell, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure a cell. Yield one row, or two if one reader stalls: the other readers, and that one."""
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
        kept = replayed(server.location, printed) if cell.recorded else None
        row = asdict(cell) | {"open_seconds": opened} | used | _kept(kept)
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
    """By board, the number after the last one: of its rows, or of its chunks, as its reader who has seen most knows."""
    if cell.format == JSONL:
        return [board.rows for board in printed]
    return [max((each["next"] for each in seen[number :: cell.boards]), default=0) for number in range(cell.boards)]


def _received(
    cell: Cell, printed: Sequence[Printed], ends: Sequence[int], seen: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Rows of JSON lines, or chunks and, byte by byte, what was in them. `ends`: the number after each board's last."""
    paths = {each["path"] for each in seen if not each["error"]}
    if paths - {cell.mode}:
        raise WrongPath(f"asked for the path {cell.mode!r}, followed on {paths}")
    expected = received = wrong = 0
    for number, each in enumerate(seen):
        board = printed[number % cell.boards]
        received += each["count"]
        wrong += each["wrong"]
        expected += ends[number % cell.boards] - min(each["first"], NOT_KNOWN if cell.format == JSONL else 0)
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


def _kept(kept: Replayed | None) -> dict[str, Any]:
    if kept is None:
        return {"kept_rows": float("nan"), "kept_wrong": float("nan"), "replay_mbps": float("nan")}
    return {"kept_rows": kept.rows, "kept_wrong": kept.wrong, "replay_mbps": kept.bytes / kept.seconds / 1e6}


@contextmanager
def _readers(location: str, cell: Cell) -> Iterator[Worker]:
    """The readers of a cell (`reading`), all of whose sessions are open; the first one is to stall, if any is."""
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
        """Cores used, the server's most memory and threads, percent of all cores idle, for the next seconds."""
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
