"""Suite `memory`: how much memory the server needs to read a small and a large file from a device.

A CSV file on a simulated board with a fast line is read through Flight, on both paths, by a reader that keeps up and by
one that reads a batch and then waits. A tiny file is read first, which loads all code; then this process samples the
server's resident memory. Each read has a new server, because memory that the allocator kept from an earlier read would
hide the need of this one. The memory of the board's own process is not counted.

The claim is a fixed bound: the memory for the large file must not be in proportion to its size.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pandas as pd
import psutil
from rich.console import Console

from fastflight.client import FastFlightClient, RowStream
from fastflight.errors import DataError, FastFlightError
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import MODES, Mode
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.table import MIB, WrongPath

FAST, SLOW = "fast", "slow"
# Bytes of the files. The tiny file loads the code, the others are compared.
TINY = 2_000
SIZES = (1_000_000, 100_000_000)
QUICK_SIZES = (1_000_000, 10_000_000)
# Bytes of the simulated board's file system: more than the files take.
CAPACITY = 256 * MIB
# Only for the estimate of the whole time: a server's start, and the pace of the line.
ASSUMED_START_SECONDS, ASSUMED_BYTES_PER_SECOND = 4.0, 20e6
# The interval of the samples. Making a batch takes longer.
SAMPLE_SECONDS = 0.002
# How long a slow reader waits after its first batch. A server without a bound has read the whole file by then.
WAIT_SECONDS = 5.0

HEADER = b"time,temperature,humidity,pressure,state\n"
COLUMNS = [
    "file_mb",
    "mode",
    "reader",
    "run",
    "baseline_mb",
    "peak_mb",
    "held_mb",
    "seconds",
    "rows",
    "error",
]


@dataclass(frozen=True, slots=True)
class File:
    """A file, with the rows and sha256 that a correct read returns."""

    path: Path
    size: int
    rows: int
    sha256: str


class Watch:
    """Watches the highest resident memory of a process while the context lasts."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-watch")
        self.peak = self.now()

    def now(self) -> int:
        """Return its resident bytes."""
        return int(self._process.memory_info().rss)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            try:
                self.peak = max(self.peak, self.now())
            except psutil.NoSuchProcess:
                return


def run(options: Options, sizes: Sequence[int] = ()) -> int:
    """Measure, save and show. Return how many readings failed."""
    sizes = sizes or (QUICK_SIZES if options.quick else SIZES)
    description = options.describe("memory", {"bytes": sizes, "wait_seconds": WAIT_SECONDS})
    options.console.print("each reading has a server of its own, in a process of its own; --server is not used")
    with tempfile.TemporaryDirectory(prefix="fastflight-benchmark-") as folder:
        tiny = make(Path(folder), TINY)
        files = [make(Path(folder), size) for size in sizes]
        work = list(itertools.product(range(1, options.runs + 1), files, MODES, (FAST, SLOW)))
        seconds = sum(
            ASSUMED_START_SECONDS + file.size / ASSUMED_BYTES_PER_SECOND + (WAIT_SECONDS if reader == SLOW else 0)
            for _, file, _, reader in work
        )
        options.console.print(f"{len(work)} readings, about {report.duration(seconds)} in all")
        rows = []
        for number, (run_number, file, mode, reader) in enumerate(work, 1):
            with options.console.status(f"{number}/{len(work)}: {file.size // 10**6} MB, {mode}, {reader} reader"):
                rows.append({"run": run_number} | reading(tiny, file, mode, reader))
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = worst(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options.console, result)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def reading(tiny: File, file: File, mode: Mode, reader: str) -> dict[str, Any]:
    """Read `file` once from a new server. Return a row of `COLUMNS` without its run."""
    url = f"sim:?files={quote(str(file.path.parent))}&capacity={CAPACITY}"
    with (
        spawned(SERVER, "--server", FREE_PORT, "--device", f"big={url}") as server,
        FastFlightClient(server.location) as client,
    ):
        _check(tiny, mode, client.read("big", f"/{tiny.path.name}", mode=mode), 0.0)
        watch = Watch(server.pid)
        baseline = watch.peak
        began = time.perf_counter()
        error = ""
        with watch:
            try:
                stream = client.read("big", f"/{file.path.name}", mode=mode)
                _check(file, mode, stream, WAIT_SECONDS if reader == SLOW else 0.0)
            except WrongPath:
                raise
            except FastFlightError as raised:
                error = str(raised)
    return {
        "file_mb": file.size / 1e6,
        "mode": mode,
        "reader": reader,
        "baseline_mb": baseline / MIB,
        "peak_mb": watch.peak / MIB,
        "held_mb": (watch.peak - baseline) / MIB,
        "seconds": time.perf_counter() - began,
        "rows": file.rows,
        "error": error,
    }


def worst(raw: pd.DataFrame) -> pd.DataFrame:
    """Returns, for each reading, the run with the most memory. Failed runs are left out."""
    right = raw[raw["error"] == ""]
    rows = right.groupby(["mode", "reader", "file_mb"])["held_mb"].idxmax()
    return raw.loc[rows, [name for name in COLUMNS if name != "error"]].reset_index(drop=True)


def show(console: Console, result: pd.DataFrame) -> None:
    """Show how much memory the server needed beyond its baseline, by the size of the file."""
    sizes = sorted(result["file_mb"].unique())
    grid = report.table(
        "MiB that the server holds while it reads a file, above its memory before; the worst run",
        ("path", "reader", *(f"{size:.0f} MB file" for size in sizes)),
        "more for the larger file",
    )
    for (mode, reader), group in result.groupby(["mode", "reader"]):
        beyond = group.set_index("file_mb")["held_mb"].reindex(sizes)
        growth = beyond.iloc[-1] - beyond.iloc[0]
        grid.add_row(str(mode), str(reader), *(f"{size:.1f}" for size in beyond), f"{growth:+.1f}")
    console.print(grid)


def make(folder: Path, size: int) -> File:
    """Make a CSV file of about `size` bytes: readings of a logger, one a second."""
    lines = _lines()
    digest = hashlib.sha256()
    rows = written = 0
    path = folder / f"readings-{size}.csv"
    with path.open("wb") as file:
        piece = HEADER
        while piece:
            file.write(piece)
            digest.update(piece)
            written += len(piece)
            block = [next(lines) for _ in range(min(1000, (size - written) // 40))]
            rows += len(block)
            piece = b"".join(block)
    return File(path, written, rows, digest.hexdigest())


def _lines() -> Iterator[bytes]:
    for number in itertools.count():
        when = (
            f"2025-01-{1 + number // 86_400 % 28:02}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        )
        yield f"{when},{18 + number % 97 / 10:.1f},{40 + number % 31},{101_300 + number % 53},ok\n".encode()


def _check(file: File, mode: Mode, stream: RowStream, wait: float) -> None:
    """Read all of `stream`, waiting after its first batch, and compare it with the file."""
    if stream.path != mode:
        raise WrongPath(f"requested the path {mode!r}, answered on {stream.path!r}")
    rows = 0
    for number, batch in enumerate(stream):
        rows += batch.num_rows
        if number == 0:
            time.sleep(wait)
    summary = stream.summary
    if (rows, summary.get("sha256"), summary.get("rejected")) != (file.rows, file.sha256, 0):
        raise DataError(
            f"{rows} rows arrived, expected {file.rows}; {summary.get('rejected')} were set aside", where=file.path.name
        )
