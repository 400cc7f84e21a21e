"""Keeps a server under clients that come and go, for minutes or hours, and checks rows, memory and descriptors.

    python -m tests.campaigns soak --seconds 600
    python -m tests.campaigns soak --seconds 86400 --boards 100 --clients 50

One board in ten is a simulated one, with files and a REPL; the others print rows, many to a process. All are recorded.
Clients (`soaking.visits`) read files, follow sessions, write and verify, use a REPL, come by HTTP, read slowly, and
hang up. Nothing is struck: each round samples the server's process.

The warm-up ends when everything that fills up is full: the taps, and the memory that compacting a GB of recordings
takes. A run that is too short to tell about memory (ten minutes) says so.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from fastflight.transport.chunk_buffer import CHUNK_BYTES, KEPT_BYTES
from fastflight_benchmark.loading.recorded import replayed
from fastflight_benchmark.printing_boards import Options, printing
from tests.campaigns import engine
from tests.campaigns.faulting.program import Program
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
# Sampled so often.
INTERVAL_SECONDS = 2.0
# Fewer visits of a kind say nothing, and neither do samples of a shorter time.
LEAST_VISITS, LEAST_SECONDS = 20, 1800.0
# Memory that grows by less is called flat: a day of it is about what a server has before its first client comes.
FLAT_MB_PER_HOUR = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` since the start; memory, descriptors and threads of the process; tasks and streams by its `stats`.

    `lasting_threads`: without those of pools. `compacted`: recordings were compacted by then; `compacting`: a file was
    being written.
    """

    seconds: float
    rss_mb: float
    descriptors: int
    lasting_threads: int
    tasks: int
    streams: int
    compacted: bool
    compacting: bool


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


class Soak(engine.Campaign):
    name = "soak"
    rounds = 10**6
    seconds = 600.0
    needed = ("rows read", "rows written", "rows recorded")
    options = (
        engine.option("--boards", 100, "boards, one in ten of them with files"),
        engine.option("--clients", 50, "clients at a time"),
    )

    def start(self) -> None:
        full = max(1, self.asked.boards // PRINTING_PER_BOARD)
        printing_boards = Options(self.asked.boards - full, rows_per_second=ROWS_PER_SECOND)
        self._fleet = self.stack.enter_context(printing(printing_boards))
        devices = {f"board-{number}": url for number, url in enumerate(self._fleet.urls)}
        printing_names, names = tuple(devices), tuple(f"sim-{number}" for number in range(full))
        devices |= dict.fromkeys(names, "sim:?telemetry=10")
        fleet = self.folder / "fleet.toml"
        fleet.write_text("".join(f'[devices.{name}]\nurl = "{url}"\n' for name, url in devices.items()))
        self._recordings = self.folder / "recordings"
        serving = ["serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(fleet), "--http", "0", "--log-json"]
        serving += ["--record", "*", "--recordings", str(self._recordings), *TABLE]
        listening = [r"listening on (grpc://[^\s;]+)", r"listening on (http://[^\s;]+)"]
        self._server = Program("server", serving, listening, self.folder / "server.log")
        self.programs.append(self._server)
        self._location, http = self._server.start()
        self.stack.callback(self._server.kill)
        with FastFlightClient(self._location) as client:
            file = client.read("sim-0", FILE).to_arrow()
            for name in names:  # what begins with the first of its kind is there from then on
                client.ls(name)
        place = Place(self._location, http, printing_names, names, file, lines(http, "sim-0"))
        self._process, self._began = psutil.Process(self._server.pid), time.monotonic()
        self._clients = [Client(place, number, self.asked.seed) for number in range(self.asked.clients)]
        for kind in VISITS:
            self._clients[0].once(partial(self._clients[0].visit, kind))
        self._samples: list[Sample] = []
        self._start = self._rested(None)
        for each in self._clients:
            each.start()

    def carry_out(self, number: int, chance: random.Random) -> None:
        time.sleep(INTERVAL_SECONDS)
        self._samples.append(self._sample())

    def finish(self) -> None:
        self.check({"visits end in time, with right rows or a documented error": self._flawed_visits})
        self._end = self._rested(self._start)
        self._printed = self._fleet.stop()

    def at_end(self) -> dict[str, engine.Invariant]:
        return {
            "memory is flat": self._grown,
            "no descriptor, thread, stream or task is leaked": self._leaked,
            "all printed rows are recorded": self._not_recorded,
        }

    def _flawed_visits(self) -> Iterator[str]:
        yield from engine.settled(self._clients, self.counts)
        visits, rows = Counter[str](), Counter[str]()
        counted = sum((each.counted for each in self._clients), Counted())
        for each in self._clients:
            visits += each.visits
            rows += each.rows
        self.counts.update({f"visits: {kind}": count for kind, count in visits.items()})
        self.counts.update({"rows read": counted.read, "rows written": counted.written, "gaps": counted.told_missing})
        for kind in VISITS:
            if visits[kind] >= LEAST_VISITS and not rows[kind]:
                yield f"{kind}: no rows in {visits[kind]} visits"

    def _grown(self) -> Iterator[str]:
        grew = growth(self._samples)
        engine.say("too short to tell about memory" if grew is None else f"memory: {grew:+.1f} MB per hour")
        self.counts["MB at the end"] = round(self._end.rss_mb)
        if grew is not None and grew >= FLAT_MB_PER_HOUR:
            yield f"{grew:+.1f} MB per hour after the warm-up"

    def _leaked(self) -> Iterator[str]:
        start, end = self._start, self._end
        for name, allowed in (
            ("descriptors", start.descriptors + SPARE_DESCRIPTORS),
            ("lasting_threads", start.lasting_threads),
            ("streams", 0),
            ("tasks", start.tasks),
        ):
            if not 0 <= (count := getattr(end, name)) <= allowed:
                yield f"{count} {name}, at the start {getattr(start, name)}"

    def _not_recorded(self) -> Iterator[str]:
        kept = replayed(self._location, self._printed)
        printed = sum(board.rows for board in self._printed)
        self.counts["rows recorded"] = kept.rows
        if kept.rows != printed or kept.wrong:
            yield f"{kept.rows} of {printed}, and {kept.wrong} recordings are wrong"

    def _sample(self) -> Sample:
        """Take one sample. The client that asks `stats` has left when the process is looked at."""
        tasks = streams = pooled = -1
        with contextlib.suppress(FastFlightError), FastFlightClient(self._location) as client:
            told = client.stats()
            tasks, streams = sum(shard["tasks"] for shard in told["shards"]), told["open"]
            pooled = told["threads"]["offload"] + told["threads"]["other"]
        names = [file.name for file in self._recordings.rglob("*.parquet*")]
        with self._process.oneshot():
            threads = self._process.num_threads()
            return Sample(
                round(time.monotonic() - self._began, 1),
                self._process.memory_info().rss / 1e6,
                self._process.num_fds(),
                -1 if pooled < 0 else threads - pooled,
                tasks,
                streams,
                any(name.endswith(".parquet") for name in names),
                any(name.endswith(".new") for name in names),
            )

    def _rested(self, start: Sample | None) -> Sample:
        """Return a sample without clients, when the process is back at `start`, does not change, or time is up."""
        deadline, before = time.monotonic() + REST_SECONDS, None
        while True:
            sample = self._sample()
            held = sample.descriptors, sample.lasting_threads
            if start is not None:
                is_settled = held[0] <= start.descriptors and held[1] <= start.lasting_threads
            else:
                is_settled = held == before
            if (is_settled and sample.streams == 0) or time.monotonic() > deadline:
                return sample
            before = held
            time.sleep(POLL_SECONDS)


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


CAMPAIGN = Soak
