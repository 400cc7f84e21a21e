"""Suite `sessions`: live sessions of boards that print, and the cost of recording them.

Boards, a server and readers are three processes on this computer, for some seconds. The boards begin to print when all
sessions are open. They stop before the other processes end, and the readers wait for the rest. Every row is counted
from the board to the reader: a row that is missing without a gap, or wrong, fails the run. A recording is read
completely through the server and compared with what the boards printed.

The part `log` measures the recording log by itself. What is read is still in the system's memory, so no disk is
measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from fastflight.errors import DataError
from fastflight.log import LOG_SCHEMA, NumberedRows, Store
from fastflight_benchmark.contenders import ASYNC, MODES, SYNC
from fastflight_benchmark.engine import LESS, MIB, MORE, Bench, Figures, Measure, Suite, WrongPath
from fastflight_benchmark.loading.recorded import replayed
from fastflight_benchmark.loading.session_readers import BYTES, JSONL, Reader
from fastflight_benchmark.printing_boards import Options, Printed, printing
from fastflight_benchmark.processes import Spawned, Worker, spawned
from fastflight_benchmark.result import Label

READING = "fastflight_benchmark.loading.session_readers"
BOARDS, RECORDED, FULL_SPEED, STALLED, LOG = "boards", "recorded", "full speed", "stalled", "log"
OWN_LOG = "recording log"
# Bytes per second at 3 Mbaud, the fastest rate of boards' UARTs and their adapters.
LINE_BYTES = 300_000.0
# A session may leave out the first row, because it cannot know whether the row is complete.
SKIPPED_ROWS = 1
# The pause after opening, until the processes are idle.
SETTLE_SECONDS = 0.5
LOOK_SECONDS = 0.1
# The log syncs this often. Rows of 64 bytes are what an ordinary board prints, chunks of 4 KiB come from a fast one.
SYNC_MS, ROW_SIZES, BATCH_BYTES = 100.0, (64, 4096), 256 * 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """Numbers of boards with a reader each; recorded boards; readers of one board; seconds; and bytes of the log."""

    boards: tuple[int, ...]
    recorded: int
    # How many of the recorded boards are also read live.
    sampled: int
    readers: int
    seconds: float
    stall_seconds: float
    # The line of the board with a stalled reader: as fast as needed for the server's buffer to overflow meanwhile.
    stall_bytes_per_second: float
    log_bytes: int


FULL = Scope((1, 10, 100), 1000, 50, 50, 3.0, 60.0, LINE_BYTES, 256_000_000)
QUICK = Scope((5,), 20, 5, 3, 0.5, 4.0, 10 * LINE_BYTES, 16_000_000)


@dataclass(frozen=True, slots=True)
class Cell:
    """Boards and their readers: `readers` sessions, spread over the boards in turn."""

    part: str
    boards: int
    readers: int
    recorded: bool = False
    # If it is not 0, boards print this much instead of ten rows a second.
    bytes_per_second: float = 0.0
    # The first of the readers stops reading for this long; all then read bytes.
    stall_seconds: float = 0.0

    @property
    def labels(self) -> dict[str, Label]:
        return {"part": self.part, "boards": self.boards, "readers": self.readers}

    @property
    def format(self) -> str:
        return BYTES if self.stall_seconds else JSONL


def run(bench: Bench) -> None:
    """Measure all cells on both paths, and the log."""
    scope = bench.scope(FULL, QUICK)
    for round_ in bench.rounds():
        for cell in cells(scope, round_):
            seconds = scope.seconds + cell.stall_seconds
            modes = (ASYNC,) if cell.part == RECORDED else MODES
            bench.measure(cell.labels, {mode: partial(measured, cell, mode, seconds) for mode in modes}, [round_])
        for row_bytes in ROW_SIZES:
            log = partial(_log, row_bytes, scope.log_bytes)
            bench.measure({"part": LOG, "row_bytes": row_bytes}, {OWN_LOG: log}, [round_])


def cells(scope: Scope, round_: int) -> Iterator[Cell]:
    """Yield the cells of a run. The stalled reader takes long, and so comes once."""
    for count in scope.boards:
        yield Cell(BOARDS, count, count)
    yield Cell(RECORDED, scope.recorded, scope.sampled, recorded=True)
    yield Cell(FULL_SPEED, 1, 1, bytes_per_second=LINE_BYTES)
    yield Cell(BOARDS, 1, scope.readers)
    if round_ == 1:
        yield Cell(
            STALLED,
            1,
            scope.readers,
            bytes_per_second=scope.stall_bytes_per_second,
            stall_seconds=scope.stall_seconds,
        )


def measured(cell: Cell, mode: str, seconds: float) -> Figures:
    """Return the figures of a cell. `DataError` if a row is missing without a gap, or wrong."""
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
        server = stack.enter_context(spawned("fastflight", *arguments))
        readers = stack.enter_context(Worker(READING))
        numbers = [number % cell.boards for number in range(cell.readers)]
        stalls = [cell.stall_seconds, *[0.0] * (cell.readers - 1)]
        opened = [Reader(number, mode, cell.format, stall) for number, stall in zip(numbers, stalls, strict=True)]
        readers.ask({"location": server.location, "readers": [asdict(reader) for reader in opened]})
        fleet.start()
        time.sleep(SETTLE_SECONDS)
        readers.tell({"do": "begin"})
        used = _used(server, seconds)
        printed = fleet.stop()
        ends = [printed[number].rows if cell.format == JSONL else printed[number].bytes for number in numbers]
        seen = readers.ask({"do": "finish", "ends": ends})
        if cell.recorded:
            replay = replayed(server.location, printed)
            if replay.wrong or replay.rows != sum(board.rows for board in printed):
                raise DataError(f"{replay.wrong} recordings differ from what was printed", where="recordings")
            used["replay"] = replay.bytes / replay.seconds / 1e6
        return used | _received(cell, mode, printed, numbers, seen)


def _used(server: Spawned, seconds: float) -> dict[str, float]:
    """Wait for `seconds`. Return the server's cores, and its highest memory and threads in this time."""
    process = psutil.Process(server.pid)
    began, before = time.perf_counter(), server.cpu_seconds()
    memory = threads = 0
    while (left := began + seconds - time.perf_counter()) > 0:
        memory = max(memory, process.memory_info().rss)
        threads = max(threads, process.num_threads())
        time.sleep(min(LOOK_SECONDS, left))
    cores = (server.cpu_seconds() - before) / (time.perf_counter() - began)
    return {"server_cores": cores, "memory": memory / MIB, "threads": threads}


def _received(
    cell: Cell, mode: str, printed: Sequence[Printed], numbers: Sequence[int], seen: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Return the time from the boards to the readers, after every row or chunk is accounted for."""
    if errors := {each["error"] for each in seen} - {""}:
        raise DataError("; ".join(sorted(errors)), where="a reader")
    if (paths := {each["path"] for each in seen}) != {mode}:
        raise WrongPath(f"requested the path {mode!r}, answered on {paths}")
    missing = wrong = gaps = lost = 0
    # Chunks have no number at the board: the most advanced reader shows how many there were.
    chunks = [max((each["next"] for each in seen[board :: cell.boards]), default=0) for board in range(cell.boards)]
    for place, (number, each) in enumerate(zip(numbers, seen, strict=True)):
        end = printed[number].rows if cell.format == JSONL else chunks[number]
        first = min(each["first"], SKIPPED_ROWS if cell.format == JSONL else 0)
        missing += end - first - each["count"] - each["lost"]
        wrong += each["wrong"]
        lost += each["lost"]
        if cell.format == BYTES and not each["gaps"]:
            wrong += (each["bytes"], each["crc"]) != (printed[number].bytes, printed[number].crc)
        if place and cell.stall_seconds:
            gaps += each["gaps"]
    if missing or wrong or gaps:
        text = f"{missing} rows or chunks are missing without a gap, {wrong} are wrong"
        raise DataError(f"{text}, {gaps} gaps at readers that never stalled")
    # The reader that stalls has old rows, which is not the server's time.
    timed = seen[1:] if cell.stall_seconds else seen
    times = np.concatenate([np.array(each["times"]) for each in timed])
    if not len(times):
        return {"lost": lost}
    p50, p99 = np.percentile(times, [50, 99])
    return {"median": float(p50), "99_%": float(p99), "lost": lost}


def _log(row_bytes: int, size: int) -> Figures:
    """Record and replay batches of chunks, as a recorder makes them."""
    count = BATCH_BYTES // row_bytes
    columns = [
        [time.time_ns() // 1000] * count,
        ["rx"] * count,
        [os.urandom(row_bytes) for _ in range(count)],
        [None] * count,
    ]
    batches = [pa.record_batch(columns, schema=LOG_SCHEMA)] * max(1, size // BATCH_BYTES)
    with tempfile.TemporaryDirectory(prefix="fastflight-log-") as folder, Store(Path(folder), sync_ms=SYNC_MS) as store:
        log = store.open("board")
        began = time.perf_counter()
        tickets = [log.append(batch) for batch in batches]
        for ticket in tickets:
            ticket.result()
        written = time.perf_counter()
        rows = sum(item.batch.num_rows for item in log.read() if isinstance(item, NumberedRows))
        ended = time.perf_counter()
    if rows != count * len(batches):
        raise DataError(f"{rows} rows were read, not {count * len(batches)}", where=OWN_LOG)
    megabytes = len(batches) * BATCH_BYTES / 1e6
    return {"record": megabytes / (written - began), "replay": megabytes / (ended - written)}


SUITE = Suite(
    name="sessions",
    title="Live sessions, from the board's clock to the reader; cores, memory and threads are the server's",
    measures={
        "median": Measure("ms", LESS),
        "99 %": Measure("ms"),
        "server cores": Measure("", LESS),
        "memory": Measure("MiB", LESS),
        "threads": Measure(""),
        "lost": Measure("rows"),
        "replay": Measure("MB/s", MORE),
        "record": Measure("MB/s", MORE),
    },
    ours=(*MODES, OWN_LOG),
    references=(SYNC,),
    run=run,
)
