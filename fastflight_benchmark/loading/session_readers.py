"""Readers of live sessions, as a process of its own: a thread and a connection for each, counting and timing.

    {"location": URL, "readers": [Reader, ...]}
    {"do": "begin"}
    {"do": "finish", "ends": [...]}

These are its lines of input. It answers the first with `true` when all sessions are open. `begin` drops the times so
far and starts the stall of readers that have one. `finish` says where each reader ends (the number after its last row,
or its number of bytes). The answer is what each reader has seen; then the process ends.

A reader is a bare `pyarrow.flight` client with its own connection, so a stalled reader does not block the others. The
time of a row is from the board's clock to the moment at which the reader has its batch. It includes delays between the
threads of this process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from fastflight_benchmark.loading.counting import JSON_SCHEMA, Numbers, Rows, Traffic

# If nothing arrives for this long after the boards stopped printing, the rest is missing.
PATIENCE_SECONDS = 3.0
POLL_SECONDS = 0.01
BYTES, JSONL = "bytes", "jsonl"
# The counts of a reader (`counting.Count`) that are reported.
COUNTS = ("count", "first", "next", "gaps", "lost", "wrong", "bytes", "crc")


@dataclass(frozen=True, slots=True)
class Reader:
    """One session of the device of the printing board with this number."""

    board: int
    mode: str
    format: str = JSONL
    stall_seconds: float = 0.0


class Following(threading.Thread):
    """The thread of a reader."""

    def __init__(self, location: str, reader: Reader) -> None:
        super().__init__(name=f"reader of {reader.board}", daemon=True)
        self.reader = reader
        self.open = threading.Event()
        self.counted: Rows | Traffic = Rows(reader.board) if reader.format == JSONL else Traffic(reader.board)
        self.path = ""
        self.error = ""
        self._ending = False
        self._stall = threading.Event()
        self._times: list[Numbers] = []
        self._client = flight.FlightClient(location, generic_options=[("grpc.use_local_subchannel_pool", 1)])
        self._stream: Any = None

    def run(self) -> None:
        """Read until `end`."""
        try:
            self._read()
        except pa.ArrowException as error:
            if not self._ending:
                self.error = str(error).partition(". Detail")[0][:200]
        finally:
            self.open.set()
            self._client.close()

    def begin(self) -> None:
        """Drop the times so far. A reader that is to stall stops reading for a while."""
        self._times = []
        if self.reader.stall_seconds:
            self._stall.set()

    def end(self) -> None:
        """Stop reading."""
        self._ending = True
        if self._stream is not None:
            self._stream.cancel()
        self.join(PATIENCE_SECONDS)

    def seen(self) -> dict[str, Any]:
        """Return what arrived, for JSON: the counts, the path of the schema, the error, and times in milliseconds."""
        counts = {name: getattr(self.counted, name) for name in COUNTS}
        times = np.concatenate(self._times) / 1e6 if self._times else np.zeros(0)
        return {**counts, "path": self.path, "error": self.error, "times": times.round(3).tolist()}

    def _read(self) -> None:
        ticket: dict[str, Any] = {"type": "device.session", "device": f"board-{self.reader.board}", "flush_ms": 0}
        ticket |= {"mode": self.reader.mode, "format": self.reader.format}
        if self.reader.format == JSONL:
            ticket["schema"] = JSON_SCHEMA
        self._stream = self._client.do_get(flight.Ticket(json.dumps(ticket).encode()))
        self.path = self._stream.schema.metadata[b"fastflight.path"].decode()
        self.open.set()
        for chunk in self._stream:
            now = time.monotonic_ns()
            note = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
            times = self.counted.take(chunk.data, note, now)
            if len(times):
                self._times.append(times)
            if self._stall.is_set():
                self._stall.clear()
                time.sleep(self.reader.stall_seconds)


def run() -> None:
    """Carry out the lines of input."""
    # The first array looks for pandas, which takes as long as opening all sessions.
    pa.array([0])
    setup = json.loads(sys.stdin.readline())
    readers = [Following(setup["location"], Reader(**each)) for each in setup["readers"]]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.open.wait()
    print(json.dumps(True), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if task["do"] == "begin":
            for reader in readers:
                reader.begin()
        else:
            _wait(readers, task["ends"])
            for reader in readers:
                reader.end()
            print(json.dumps([reader.seen() for reader in readers]), flush=True)
            return


def _wait(readers: Sequence[Following], ends: Sequence[int]) -> None:
    """Wait until all have reached their ends, or nothing arrives any more."""
    before, changed = -1, time.monotonic()
    pairs = list(zip(readers, ends, strict=True))
    while any(reader.is_alive() and not reader.counted.reached(end) for reader, end in pairs):
        now, count = time.monotonic(), sum(reader.counted.count for reader in readers)
        if count != before:
            before, changed = count, now
        elif now - changed > PATIENCE_SECONDS:
            return
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    run()
