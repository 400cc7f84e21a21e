"""Keeps a server under clients that come and go, for minutes or hours, and checks rows, memory and descriptors.

    python -m tests.campaigns.soak --minutes 10
    python -m tests.campaigns.soak --hours 24 --boards 100 --clients 50
    python -m tests.campaigns.soak --minutes 60 --clients 200 --tides   # three of four clients pause for 90 s in 180

One board in ten is a simulated one, with files and a REPL; the others print rows, many to a process. All are recorded.
Clients (`soaking.visits`) read files, follow sessions, write and verify, use a REPL, come by HTTP, read
slowly, and hang up. The server's process is sampled into a CSV. Exit code 1: memory grew after the
warm-up, descriptors or threads were not given back, a row is unaccounted for, or an error had no code.

The warm-up ends when everything that fills up is full: the taps, and the memory that compacting a GB of recordings
takes. Memory while recordings are compacted is compared with other times of compaction. A run that is too short (ten
minutes) says that it cannot tell about memory; so does one whose slope is not known well enough. Ctrl-C or SIGTERM ends
a run early, and judges it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight.app.local_cluster import free_ports
from fastflight.client import FastFlightClient
from fastflight.transport.chunk_buffer import CHUNK_BYTES, KEPT_BYTES
from fastflight_benchmark import machine
from fastflight_benchmark.loading.recorded import Replayed, replayed
from fastflight_benchmark.printing_boards import Options, printing
from fastflight_benchmark.processes import spawned
from fastflight_benchmark.result import RESULTS
from tests.campaigns import engine
from tests.campaigns.soaking.sampling import FLAT_MB_PER_HOUR, Sample, Sampling, Slope, slope
from tests.campaigns.soaking.visitors import Client, VisitOutcome
from tests.campaigns.soaking.visits import FILE, VISITS, Place, lines

# One in so many boards is one that can do more than print.
PRINTING_PER_BOARD = 10
ROWS_PER_SECOND = 5.0
# Until the tap of a board that prints is full, each row adds to it: 26 MB for a hundred boards.
TAPS_FULL_SECONDS = KEPT_BYTES / (ROWS_PER_SECOND * CHUNK_BYTES)
# After the last client has left: a connection that was cut is noticed by then.
REST_SECONDS = 20.0
POLL_SECONDS = 0.5
# Descriptors that may come and go by themselves: connections to the database of recordings, the pipe or socket that
# gRPC keeps ready.
SPARE_DESCRIPTORS = 8
# Sampled so often, and less often where it takes hours.
INTERVAL_SECONDS, MOST_SAMPLES = 2.0, 5000
# Fewer say nothing: of samples, and of visits of a kind.
LEAST_SAMPLES = LEAST_VISITS = 20
# What is shown of what should not be.
MAX_SHOWN = 20
SAID = {True: "held       ", False: "FAILED     ", None: "cannot tell"}


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak found."""

    outcome: VisitOutcome
    kept: Replayed
    printed_rows: int
    start: Sample
    end: Sample
    slope: Slope
    samples: Sequence[Sample]
    seconds: float

    def verdicts(self) -> dict[str, bool | None]:
        """Return each promise, and whether it held. None: the run was too short to tell."""
        counted = self.outcome.counted
        grew = self.slope
        warm_up = warm_up_of(self.samples)
        told = warm_up is not None and len(warmed(self.samples, warm_up)) >= LEAST_SAMPLES
        rows = self.outcome.rows
        without = [kind for kind, visits in self.outcome.visits.items() if visits >= LEAST_VISITS and not rows[kind]]
        since = f"after {warm_up:.0f} s" if warm_up is not None else "so far, and the recordings not compacted yet"
        return {
            f"memory is flat: {grew.mb_per_hour:+.1f} MB per hour {since}, 95 % within {grew.low:+.1f} and "
            f"{grew.high:+.1f}, {self.end.rss_mb:.0f} MB at the end": grew.flat if told else None,
            f"descriptors are back: {self.start.descriptors} at the start, {self.end.descriptors} at the end": (
                self.end.descriptors <= self.start.descriptors + SPARE_DESCRIPTORS
            ),
            f"threads are back, but for pools: {self.start.lasting_threads}, then {self.end.lasting_threads} "
            f"(in all {self.start.threads}, then {self.end.threads})": (
                0 <= self.end.lasting_threads <= self.start.lasting_threads
            ),
            f"no stream is left: {self.end.streams}": self.end.streams == 0,
            f"tasks are back: {self.start.tasks}, then {self.end.tasks}": 0 <= self.end.tasks <= self.start.tasks,
            f"all {self.printed_rows} printed rows are kept: {self.kept.rows}": (
                0 < self.kept.rows == self.printed_rows and not self.kept.wrong
            ),
            f"of {counted.read} rows read and {counted.written} written {counted.wrong} are wrong "
            f"({counted.told_missing} gaps were told)": counted.wrong == 0 and counted.read > 0,
            f"each kind of visit has had rows, without any: {without}": not without,
            f"errors have a code: {dict(self.outcome.errors)}": not self.outcome.untyped,
        }


def soak(folder: Path, asked: argparse.Namespace, seconds: float) -> Soaked:
    """Run a soak. `Soaked.verdicts` judges it."""
    full = max(1, asked.boards // PRINTING_PER_BOARD)
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
                "--record", "*", "--recordings", str(kept_in), "--http", str(port), "--log-json",
            )
        )  # fmt: skip
        names = tuple(devices)
        with FastFlightClient(server.location) as client:
            file = client.read("sim-0", FILE).to_arrow()
        http = f"http://127.0.0.1:{port}"
        printing_ones, boards_with_files = names[: len(fleet.urls)], names[len(fleet.urls) :]
        place = Place(server.location, http, printing_ones, boards_with_files, file, lines(http, "sim-0"))
        visitors = [Client(place, number, asked.seed, tides=asked.tides) for number in range(asked.clients)]
        sampling = Sampling(server.pid, server.location, kept_in, max(INTERVAL_SECONDS, seconds / MOST_SAMPLES))
        # What begins with the first of its kind (a board's line, a pool) is there from then on.
        for name in place.boards:
            with FastFlightClient(server.location) as client:
                client.ls(name)
        for kind in VISITS:
            visitors[0].once(partial(visitors[0].visit, kind))
        start = _rested(sampling, None)
        with sampling:
            for visitor in visitors:
                visitor.start()
            try:
                lasted = _lasted(seconds)
            finally:
                for visitor in visitors:
                    visitor.leave()
                outcome = VisitOutcome()
                for visitor in visitors:
                    visitor.settle()
                    outcome.add(visitor)
            samples = list(sampling.samples)
        end = _rested(sampling, start)
        printed = fleet.stop()
        kept = replayed(server.location, printed)
    rows = sum(board.rows for board in printed)
    judged = warmed(samples, warm_up_of(samples) or TAPS_FULL_SECONDS)
    return Soaked(outcome, kept, rows, start, end, slope(judged), samples, lasted)


def warm_up_of(samples: Sequence[Sample]) -> float | None:
    """How long memory was filled for the first time: until the taps were, and recordings compacted. None: it still is.

    The library that Arrow has its memory from keeps what a thread had at most, and compacting takes more than answers.
    """
    done = (each.seconds - samples[0].seconds for each in samples if each.compacted and not each.compacting)
    compacted = next(done, None)
    return None if compacted is None else max(compacted, TAPS_FULL_SECONDS)


def warmed(samples: Sequence[Sample], warm_up: float) -> list[Sample]:
    """Return the samples after the warm-up."""
    return [each for each in samples if each.seconds - samples[0].seconds >= warm_up]


def _lasted(seconds: float) -> float:
    """Wait so long, or until Ctrl-C or SIGTERM. Return the seconds."""
    began = time.monotonic()
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        seconds = round(time.monotonic() - began, 1)
        engine.say(f"ended after {seconds} s: clients leave, and what there was is judged")
    return seconds


def _rested(sampling: Sampling, start: Sample | None) -> Sample:
    """Return a sample without clients, when the process is back at `start`, does not change, or time is up."""
    deadline = time.monotonic() + REST_SECONDS
    before: Sample | None = None
    while True:
        sample = sampling.take()
        if start is not None:
            settled = sample.descriptors <= start.descriptors and sample.lasting_threads <= start.lasting_threads
        else:
            settled = before is not None and _held(before) == _held(sample)
        if (settled and sample.streams == 0) or time.monotonic() > deadline:
            return sample
        before = sample
        time.sleep(POLL_SECONDS)


def _held(sample: Sample) -> tuple[int, int, int]:
    return sample.descriptors, sample.threads, sample.tasks


def campaign(folder: Path, asked: argparse.Namespace) -> engine.Verdict:
    """Soak a server, and report whether everything held."""
    seconds = (asked.hours * 60 + (0 if asked.hours and asked.minutes == 10.0 else asked.minutes)) * 60
    path = asked.output or RESULTS / f"soak-{datetime.now():%Y%m%d-%H%M%S}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    engine.say(f"{asked.boards} boards, {asked.clients} clients, {seconds:.0f} s")
    found = soak(folder, asked, seconds)
    verdicts = found.verdicts()
    frame = pd.DataFrame([asdict(each) for each in found.samples])
    stolen = float(frame["stolen"].mean()) if found.samples else 0.0
    description: dict[str, Any] = {
        "suite": "soak",
        "seconds": found.seconds,
        **{name: getattr(asked, name) for name in ("boards", "clients", "seed", "tides")},
        "flat_mb_per_hour": FLAT_MB_PER_HOUR,
        "stolen_percent": stolen,
        **{name: asdict(getattr(found, name)) for name in ("slope", "start", "end")},
        **{name: getattr(found.outcome, name) for name in ("visits", "rows", "errors", "untyped")},
        "verdicts": verdicts,
        "machine": machine.describe(),
    }
    frame.to_csv(path, index=False, float_format="%.6g")
    path.with_suffix(".json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    engine.say(f"{found.outcome.visits.total()} visits: {dict(found.outcome.visits)}")
    for text, held in verdicts.items():
        engine.say(f"{SAID[held]}  {text}")
    for text in found.outcome.untyped[:MAX_SHOWN]:
        engine.say(f"             {text}")
    if stolen:
        engine.say(f"             the host gave {stolen:.1f} % of the processors' time to others")
    engine.say(f"{machine.in_one_line(description['machine'])}\n{path}")
    return engine.Verdict(False not in verdicts.values())


if __name__ == "__main__":
    engine.command(
        __doc__,
        campaign,
        engine.option("--hours", 0.0, "how long, in hours"),
        engine.option("--minutes", 10.0, "how long, in minutes, beside the hours"),
        engine.option("--boards", 100, "boards, one in ten of them with files"),
        engine.option("--clients", 50, "clients at a time"),
        engine.option("--tides", False, "half of the time only a quarter of the clients come", action="store_true"),
        seed=1,
    )
