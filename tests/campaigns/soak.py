"""Keeps a server under clients that come and go, for minutes or hours, and checks rows, memory and descriptors.

    python -m tests.campaigns.soak --minutes 10
    python -m tests.campaigns.soak --minutes 1440 --boards 100 --clients 50

One board in ten is a simulated one, with files and a REPL; the others print rows, many to a process. All are recorded.
Clients (`soaking.visits`) read files, follow sessions, write and verify, use a REPL, come by HTTP, read slowly, and
hang up. The server's process is sampled; `--samples` writes the samples to a CSV. Exit code 1: memory grew after the
warm-up, descriptors or threads were not given back, a row is unaccounted for, or an error had no code.

The warm-up ends when everything that fills up is full: the taps, and the memory that compacting a GB of recordings
takes. A run that is too short to tell about memory (ten minutes) says so. Ctrl-C or SIGTERM ends a run early, and
judges it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import random
import statistics
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import psutil

from fastflight.app.local_cluster import free_ports
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from fastflight.transport.chunk_buffer import CHUNK_BYTES, KEPT_BYTES
from fastflight_benchmark.loading.recorded import replayed
from fastflight_benchmark.printing_boards import Options, printing
from fastflight_benchmark.processes import spawned
from tests.campaigns import engine
from tests.campaigns.soaking.visits import FILE, VISITS, Counted, Place, lines
from tests.support.servers import TABLE

# One in so many boards is one that can do more than print.
PRINTING_PER_BOARD = 10
ROWS_PER_SECOND = 5.0
# Until the tap of a board that prints is full, each row adds to it: 26 MB for a hundred boards.
TAPS_FULL_SECONDS = KEPT_BYTES / (ROWS_PER_SECOND * CHUNK_BYTES)
# Between two visits of a client.
PAUSE_SECONDS = (0.1, 2.0)
# After the last client has left: a connection that was cut is noticed by then.
REST_SECONDS, POLL_SECONDS = 20.0, 0.5
# Descriptors that may come and go by themselves: connections to the database of recordings, the pipe or socket that
# gRPC keeps ready.
SPARE_DESCRIPTORS = 8
# Sampled so often, and less often where it takes hours.
INTERVAL_SECONDS, MOST_SAMPLES = 2.0, 5000
# Fewer visits of a kind say nothing, and neither do samples of a shorter time.
LEAST_VISITS, LEAST_SECONDS = 20, 1800.0
# Memory that grows by less is called flat: a day of it is about what a server has before its first client comes.
FLAT_MB_PER_HOUR = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` since the first; memory, descriptors and threads of the process; tasks and streams by its `stats`.

    `lasting_threads`: without those of pools. `compacted`: files that the recordings were compacted to by then;
    `compacting`: one more was being written.
    """

    seconds: float
    rss_mb: float
    descriptors: int = 0
    threads: int = 0
    lasting_threads: int = 0
    tasks: int = 0
    streams: int = 0
    compacted: int = 0
    compacting: bool = False


@dataclass(slots=True)
class SoakOutcome:
    """Visits, and the rows that they read, by kind; errors by code; and each promise with whether it held.

    A promise is None if the run was too short to tell.
    """

    visits: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    counted: Counted = field(default_factory=Counted)
    errors: Counter[str] = field(default_factory=Counter)
    flaws: list[str] = field(default_factory=list)
    promises: dict[str, bool | None] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.flaws and False not in self.promises.values()


class Client(engine.Worker):
    """Visits `place`, rests a little, and makes the next visit."""

    def __init__(self, place: Place, number: int, seed: int) -> None:
        super().__init__(f"soak-{number}", self._come, lambda: self._chance.uniform(*PAUSE_SECONDS))
        self._place, self._chance = place, random.Random(seed * 1000 + number)
        self.visits, self.rows, self.counted = Counter[str](), Counter[str](), Counted()

    def _come(self) -> None:
        self.visit(self._chance.choice(list(VISITS)))

    def visit(self, kind: str) -> None:
        """Make one visit, and count its rows."""
        self.visits[kind] += 1
        try:
            counted = VISITS[kind](self._place, self._chance, self.name)
        except Exception as error:
            error.add_note(f"during a visit: {kind}")
            raise
        self.rows[kind] += counted.read
        self.counted += counted
        if counted.wrong:
            self.flaws.append(f"{kind}: {counted.wrong} wrong rows")

    def accepts(self, error: Exception) -> str:
        if isinstance(error, urllib.error.HTTPError):
            with error:
                return f"http {error.code}" if error.code != 500 else ""
        return super().accepts(error)


class Sampling(threading.Thread):
    """Samples a server's process every `interval` seconds until `leave`."""

    def __init__(self, pid: int, location: str, folder: Path, interval: float) -> None:
        super().__init__(name="sampling", daemon=True)
        self.samples: list[Sample] = []
        self._process, self._location, self._folder, self._interval = psutil.Process(pid), location, folder, interval
        self._began, self._over = time.monotonic(), threading.Event()

    def take(self) -> Sample:
        """Take one sample. The client that asks `stats` has left when the process is looked at."""
        tasks = streams = pooled = -1
        with contextlib.suppress(FastFlightError), FastFlightClient(self._location) as client:
            told = client.stats()
            tasks, streams = sum(shard["tasks"] for shard in told["shards"]), told["open"]
            pooled = told["threads"]["offload"] + told["threads"]["other"]
        names = [file.name for file in self._folder.rglob("*.parquet*")]
        with self._process.oneshot():
            threads = self._process.num_threads()
            return Sample(
                round(time.monotonic() - self._began, 1),
                self._process.memory_info().rss / 1e6,
                self._process.num_fds(),
                threads,
                -1 if pooled < 0 else threads - pooled,
                tasks,
                streams,
                sum(name.endswith(".parquet") for name in names),
                any(name.endswith(".new") for name in names),
            )

    def rested(self, start: Sample | None) -> Sample:
        """Return a sample without clients, when the process is back at `start`, does not change, or time is up."""
        deadline, before = time.monotonic() + REST_SECONDS, None
        while True:
            sample = self.take()
            held = sample.descriptors, sample.lasting_threads
            if start is not None:
                settled = held[0] <= start.descriptors and held[1] <= start.lasting_threads
            else:
                settled = held == before
            if (settled and sample.streams == 0) or time.monotonic() > deadline:
                return sample
            before = held
            time.sleep(POLL_SECONDS)

    def run(self) -> None:
        while not self._over.wait(self._interval):
            self.samples.append(self.take())

    def leave(self) -> None:
        self._over.set()
        self.join()


def growth(samples: Sequence[Sample]) -> float | None:
    """MB per hour after the warm-up, while recordings are not compacted; None if it is not known yet."""
    compacted = next((each.seconds for each in samples if each.compacted and not each.compacting), None)
    if compacted is None:
        return None
    warm_up = max(compacted, samples[0].seconds + TAPS_FULL_SECONDS)
    warm = [each for each in samples if each.seconds >= warm_up and not each.compacting]
    if not warm or warm[-1].seconds - warm[0].seconds < LEAST_SECONDS:
        return None
    hours = [each.seconds / 3600 for each in warm]
    return statistics.linear_regression(hours, [each.rss_mb for each in warm]).slope


def promises(
    outcome: SoakOutcome, samples: Sequence[Sample], start: Sample, end: Sample, printed: int, kept: int, wrong: int
) -> dict[str, bool | None]:
    """Return each promise, and whether it held."""
    counted, grew = outcome.counted, growth(samples)
    without = [kind for kind, visits in outcome.visits.items() if visits >= LEAST_VISITS and not outcome.rows[kind]]
    return {
        f"memory is flat: {grew} MB per hour after the warm-up, {end.rss_mb:.0f} MB at the end": (
            None if grew is None else grew < FLAT_MB_PER_HOUR
        ),
        f"descriptors are back: {start.descriptors}, then {end.descriptors}": (
            end.descriptors <= start.descriptors + SPARE_DESCRIPTORS
        ),
        f"threads are back, but for pools: {start.lasting_threads}, then {end.lasting_threads}": (
            0 <= end.lasting_threads <= start.lasting_threads
        ),
        f"no stream is left: {end.streams}": end.streams == 0,
        f"tasks are back: {start.tasks}, then {end.tasks}": 0 <= end.tasks <= start.tasks,
        f"all {printed} printed rows are kept: {kept}": 0 < kept == printed and not wrong,
        f"of {counted.read} rows read and {counted.written} written {counted.wrong} are wrong": (
            counted.wrong == 0 and counted.read > 0
        ),
        f"each kind of visit has had rows, without any: {without}": not without,
    }


def campaign(folder: Path, asked: argparse.Namespace) -> SoakOutcome:
    """Soak a server, and report whether everything held."""
    outcome, full = SoakOutcome(), max(1, asked.boards // PRINTING_PER_BOARD)
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(printing(Options(asked.boards - full, rows_per_second=ROWS_PER_SECOND)))
        devices = {f"board-{number}": url for number, url in enumerate(fleet.urls)}
        devices |= {f"sim-{number}": "sim:?telemetry=10" for number in range(full)}
        (folder / "fleet.toml").write_text(
            "".join(f'[devices.{name}]\nurl = "{url}"\n' for name, url in devices.items())
        )
        kept_in = folder / "recordings"
        (port,) = free_ports(1)
        server = stack.enter_context(
            spawned(
                "fastflight", "serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(folder / "fleet.toml"),
                "--record", "*", "--recordings", str(kept_in), "--http", str(port), "--log-json", *TABLE,
            )
        )  # fmt: skip
        names, http = tuple(devices), f"http://127.0.0.1:{port}"
        with FastFlightClient(server.location) as client:
            file = client.read("sim-0", FILE).to_arrow()
            for name in names[len(fleet.urls) :]:  # what begins with the first of its kind is there from then on
                client.ls(name)
        place = Place(
            server.location, http, names[: len(fleet.urls)], names[len(fleet.urls) :], file, lines(http, "sim-0")
        )
        clients = [Client(place, number, asked.seed) for number in range(asked.clients)]
        for kind in VISITS:
            clients[0].once(partial(clients[0].visit, kind))
        interval = max(INTERVAL_SECONDS, 60 * asked.minutes / MOST_SAMPLES)
        sampling = Sampling(server.pid, server.location, kept_in, interval)
        start = sampling.rested(None)
        for each in (*clients, sampling):
            each.start()
        try:
            time.sleep(60 * asked.minutes)
        except KeyboardInterrupt:
            engine.say("ended early: clients leave, and what there was is judged")
        finally:
            for each in clients:
                each.leave()
            for each in clients:
                each.settle()
                outcome.visits += each.visits
                outcome.rows += each.rows
                outcome.counted += each.counted
                outcome.errors += each.ended
                outcome.flaws += each.flaws
            sampling.leave()
        del outcome.errors["whole"]
        end = sampling.rested(start)
        printed = fleet.stop()
        kept = replayed(server.location, printed)
    rows = sum(board.rows for board in printed)
    outcome.promises = promises(outcome, sampling.samples, start, end, rows, kept.rows, kept.wrong)
    if asked.samples is not None:
        with asked.samples.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(asdict(start)))
            writer.writeheader()
            writer.writerows(map(asdict, sampling.samples))
    return outcome


if __name__ == "__main__":
    engine.command(
        __doc__,
        campaign,
        engine.option("--minutes", 10.0, "how long"),
        engine.option("--boards", 100, "boards, one in ten of them with files"),
        engine.option("--clients", 50, "clients at a time"),
        engine.option("--samples", None, "a CSV for the samples", type=Path),
        seed=1,
    )
