"""Kills a process that writes a recording log at random moments, and checks the log.

    python -m tests.campaigns kills --rounds 1000

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
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from fastflight.log import LOG_SCHEMA, Gap, Range, Retention, Store, Ticket, compact
from tests.campaigns.engine import Campaign, Fault, Invariant

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


class Kills(Campaign):
    name = "kills"
    needed = ("rows acknowledged", "rows read")

    def start(self) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._processes: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            # With its first array Arrow loads pandas: a second that each process would spend before it records.
            self._processes.set_forkserver_preload(["pandas", __name__])
        # For each log the number after its last known row, and what that was before the last kill.
        self._following = dict.fromkeys(LOGS, 0)
        self._before = dict(self._following)

    def carry_out(self, number: int, chance: random.Random) -> None:
        self._before = dict(self._following)
        self.strike(Fault("kill", "writer", partial(self._kill, chance)))
        # What an earlier process had appended and not acknowledged is in `before`, and is not counted.
        self.counts["rows acknowledged"] += sum(self._following[name] - self._before[name] for name in LOGS)

    def always(self) -> dict[str, Invariant]:
        start = {name: max(seq - LOOKED_AT_AGAIN, 0) for name, seq in self._before.items()}
        return {"acknowledged rows are there once, and right": partial(self._look, start)}

    def at_end(self) -> dict[str, Invariant]:
        return {"acknowledged rows are there once, and right": partial(self._look, dict.fromkeys(LOGS, 0))}

    def _kill(self, chance: random.Random) -> None:
        """Kill a process that records. `AssertionError` if it has ended by itself, or acknowledged nothing."""
        receive, send = self._processes.Pipe(duplex=False)
        # A daemon: it ends with this process, however that comes.
        arguments = (str(self.folder), chance.randrange(2**32), send)
        process = self._processes.Process(target=record, args=arguments, daemon=True)
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
        for number, following in ACKNOWLEDGED.iter_unpack(bytes(said)):
            self._following[LOGS[number]] = max(following, self._following[LOGS[number]])
        assert process.exitcode == KILLED, f"it ended by itself with {process.exitcode}"
        assert said, "it acknowledged nothing"

    def _look(self, start: dict[str, int]) -> Iterator[str]:
        """Open the folder, and check the rows of each log from `start` on."""
        with Store(self.folder) as store:
            compacted = sum(1 for name in os.listdir(self.folder) if name.endswith(".parquet"))
            self.at_most("most Parquet files", compacted)
            for name, seq in self._following.items():
                if seq and name not in store.names():
                    yield f"log {name} is gone"
            for name in store.names():
                log = store.log(name)
                # Rows that were appended and never acknowledged may be there: they are right, and count from now on.
                following = max(self._following[name], log.next_seq)
                reached = start[name]
                for item in log.read(Range(from_seq=start[name])):
                    if item.first != reached:  # passed over in silence, or there a second time
                        yield f"log {name}: row {item.first} follows row {reached - 1}"
                    if isinstance(item, Gap):
                        # What retention has let go of is not lost, if it is old enough.
                        if item.why != "cleared" or item.last >= following - KEPT_ROWS // 2:
                            yield f"log {name}: rows {item.first} to {item.last} are {item.why}"
                        reached = item.last + 1
                    else:
                        self.counts["rows read"] += item.batch.num_rows
                        if not item.batch.equals(batch_of(name, item.first, item.batch.num_rows)):
                            yield f"log {name}: rows from {item.first} on do not match their numbers"
                        reached = item.first + item.batch.num_rows
                if reached < following:
                    yield f"log {name}: rows {reached} to {following - 1} are lost"
                self._following[name] = following


CAMPAIGN = Kills
