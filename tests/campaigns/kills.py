"""Kills a process that writes a recording log at random moments, and checks the log.

    python -m tests.campaigns.kills --runs 1000

A process appends to several logs at once, sweeps and compacts, and reports which rows were acknowledged. After a
random time it is killed (SIGKILL; TerminateProcess on Windows), the folder is opened again, and every row is checked.
An acknowledged row that is missing is lost. A row is wrong if its content does not match its number, or if it comes
twice. The next process continues with the same folder. Exit code 1: a row was lost or wrong, or a process ended by
itself or acknowledged nothing before it was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import struct
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastflight.log import LOG_SCHEMA, Gap, NumberedRows, Range, Retention, Store, Ticket, compact
from tests.campaigns import engine

LOGS = ("a", "b", "c")
# Short groups and small files: many sweeps and compactions in the short life of a process.
SYNC_MS = 2.0
FILE_BYTES = 64 * 1024
LEAST_COMMITS = 4
RETENTION = Retention(max_bytes=8 * 1024 * 1024)
# Appends that wait for their acknowledgement, per round.
PIPELINED = 8
# Of each log, retention leaves at least so many rows.
KEPT_ROWS = 5000
# One acknowledgement: the log's place in LOGS, the number after its last row. Far below what a pipe writes at once.
ACKNOWLEDGED = struct.Struct("<IQ")
# The longest that a process lives after its first acknowledgement.
LIFE_SECONDS = 0.15
# A loaded machine takes this long to start a process, at worst.
START_SECONDS = 60.0
# Rows from before the last run are looked at again, so many of them; all of them at the end.
LOOKED_AT_AGAIN = 2000
# The exit code of a process that was killed; on Windows, as `multiprocessing` tells it.
KILLED = -getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(slots=True)
class KillOutcome:
    """What the campaign found. `restart_seconds` is the longest; `missed` counts processes that could not be killed."""

    runs: int = 0
    missed: int = 0
    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    wrong: int = 0
    compactions: int = 0
    restart_seconds: float = 0.0
    following: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    @property
    def clean(self) -> bool:
        return not self.lost and not self.wrong and not self.missed


def batch_of(name: str, first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    columns = [[seq * 1000 for seq in numbers], ["rx"] * rows, [content(name, seq) for seq in numbers], [None] * rows]
    return pa.record_batch([pa.array(*each) for each in zip(columns, LOG_SCHEMA.types, strict=True)], LOG_SCHEMA)


def content(name: str, seq: int) -> bytes:
    return f"{name}:{seq}:".encode() + b"x" * (seq * 7919 % 300)


def record(folder: str, seed: int, acknowledge: Connection) -> None:
    """The process that is killed."""
    chance = random.Random(seed)
    # Closed where it fails: its threads would keep the process from ending.
    with Store(folder, sync_ms=SYNC_MS, retention=RETENTION) as store:
        logs = [store.open(name) for name in LOGS]
        while True:
            tickets: list[tuple[int, Ticket]] = []
            for _ in range(PIPELINED):
                number = chance.randrange(len(logs))
                log = logs[number]
                following = log.next_seq
                batch = batch_of(log.name, following, chance.randint(1, 60))
                tickets.append((number, log.append(batch, expected=following)))
            for number, ticket in tickets:
                ticket.result()
                os.write(acknowledge.fileno(), ACKNOWLEDGED.pack(number, ticket.last + 1))
            if chance.random() < 0.05:
                store.sweep()
            if chance.random() < 0.05:
                compact(store, file_bytes=FILE_BYTES, least=LEAST_COMMITS)


def campaign(folder: Path, runs: int, seed: int) -> KillOutcome:
    """Kill `runs` processes that record to `folder`, and check after each."""
    chance = random.Random(seed)
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    processes: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        # With its first array Arrow loads pandas: a second that each process would spend before it records.
        processes.set_forkserver_preload(["pandas", "tests.campaigns.kills", __name__])
    outcome = KillOutcome()
    for _ in range(runs):
        before = dict(outcome.following)
        receive, send = processes.Pipe(duplex=False)
        # A daemon: it ends with this process, however that comes.
        process = processes.Process(target=record, args=(str(folder), chance.randrange(2**32), send), daemon=True)
        process.start()
        send.close()
        said = bytearray()
        try:
            if receive.poll(START_SECONDS):
                said += os.read(receive.fileno(), 1 << 16)
                deadline = time.monotonic() + chance.uniform(0, LIFE_SECONDS)
                while (left := deadline - time.monotonic()) > 0 and receive.poll(left):
                    if not (more := os.read(receive.fileno(), 1 << 16)):
                        break
                    said += more
        finally:
            process.kill()
            while more := os.read(receive.fileno(), 1 << 16):
                said += more
            receive.close()
            process.join()
        # One that has ended by itself, or never came so far as to acknowledge, was not struck: that is a defect, too.
        outcome.missed += process.exitcode != KILLED or not said
        for number, following in ACKNOWLEDGED.iter_unpack(bytes(said)):
            outcome.following[LOGS[number]] = max(following, outcome.following[LOGS[number]])
        outcome.runs += 1
        # What an earlier process had appended and not acknowledged is in `before`, and is not counted.
        outcome.acknowledged += sum(outcome.following[name] - before[name] for name in LOGS)
        check(folder, outcome, {name: max(seq - LOOKED_AT_AGAIN, 0) for name, seq in before.items()})
        if outcome.runs % 50 == 0 or not outcome.clean:
            engine.say(str(outcome))
    check(folder, outcome, dict.fromkeys(LOGS, 0))
    return outcome


def check(folder: Path, outcome: KillOutcome, start: dict[str, int]) -> None:
    """Open the folder, and check the rows of each log from `start` on."""
    began = time.perf_counter()
    with Store(folder) as store:
        outcome.restart_seconds = max(outcome.restart_seconds, time.perf_counter() - began)
        outcome.compactions = max(
            outcome.compactions, sum(1 for name in os.listdir(folder) if name.endswith(".parquet"))
        )
        for name in store.names():
            log = store.log(name)
            # Rows that were appended and never acknowledged may be there: then they are right, and count from now on.
            following = max(outcome.following[name], log.next_seq)
            reached = start[name]
            for item in log.read(Range(from_seq=start[name])):
                # Numbers that are passed over in silence are lost; rows that come a second time are wrong.
                outcome.lost += max(item.first - reached, 0)
                if isinstance(item, Gap):
                    # What retention has let go of is not lost, if it is old enough.
                    old = item.last < following - KEPT_ROWS // 2
                    outcome.lost += 0 if item.why == "cleared" and old else item.last - item.first + 1
                    reached = max(reached, item.last + 1)
                else:
                    outcome.read += item.batch.num_rows
                    outcome.wrong += wrong(name, item) + max(reached - item.first, 0)
                    reached = max(reached, item.first + item.batch.num_rows)
            outcome.lost += max(following - reached, 0)
            outcome.following[name] = following
        outcome.lost += sum(seq for name, seq in outcome.following.items() if seq and name not in store.names())


def wrong(name: str, rows: NumberedRows) -> int:
    """Return how many rows do not match their numbers."""
    given = rows.batch.to_pydict()
    times = rows.batch.column(0).cast(pa.int64()).to_pylist()
    return sum(
        data != content(name, seq) or at != seq * 1000
        for seq, (data, at) in enumerate(zip(given["data"], times, strict=True), rows.first)
    )


if __name__ == "__main__":
    engine.command(
        __doc__,
        lambda folder, asked: campaign(asked.folder or folder, asked.runs, asked.seed),
        engine.option("--runs", 20),
        engine.option("--folder", None, "default: a temporary one, removed at the end", type=Path),
    )
