"""Kills, cuts and fills the disk of a recording server at random, and checks what it recorded.

    python -m tests.campaigns.gaps --rounds 25
    python -m tests.campaigns.gaps --rounds 50 --fault kill

A board prints numbered lines, whether it is heard or not. In each round the server is killed and started again, the
line is cut for a while, the recording is stopped and started, or the disk is full for a while. After one kill of three
the next server is killed as well, within `FAULT_SECONDS` of its start, often before it listens. What must hold:

- After a kill all rows are there that the server had reported as stored, and at the end all that are reported then.
- The lines come in the order of their numbers.
- Each line that was printed after the first recorded one, and before the last, is recorded, or was printed within a
  listed gap. A line may be on its way for `TOLERANCE_SECONDS`.

Exit code 1: one of these did not hold, or nothing was missing.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from fastflight import FastFlightClient
from fastflight.client.answers import Recorded
from fastflight.errors import TransportError
from fastflight.gap import Gap
from fastflight_benchmark import ending
from tests.support.small_disk import SmallDisk
from tests.support.targets import TargetMissing
from tests.support.waiting import until

FLEET = """
[recordings]
folder = "{folder}"
sync_ms = 50
[devices.board]
url = "socket://127.0.0.1:{port}"
record = true
"""
LINE = re.compile(rb"(?m)^(\d+)\n")
PRINT_SECONDS = 0.005
# The longest that a line is cut, a server down, a recording stopped or a disk full.
FAULT_SECONDS = 2.0
# Between the printing of a line and its reading by the server, on a busy machine.
TOLERANCE_SECONDS = 2.0
DISK_BYTES = 16 * 1024 * 1024
FAULTS = ("kill", "cut", "stop", "fill")
# A server that does not listen after so long, on a busy machine, never will; an answer takes no longer either.
START_SECONDS = CALL_SECONDS = 60.0
# The longest that a server records before it is killed.
LIFE_SECONDS = 0.5
# The share of kills after which the next server is killed while it starts.
EARLY = 1 / 3


@dataclass(slots=True)
class GapOutcome:
    """What was found: the rounds by fault, lines, gaps by reason, and the missing lines that are in no gap.

    `acknowledged` and `lost` count rows: reported as stored at the last look, and of those reported at any look not
    there later. `disordered` counts lines whose number is not above that of the line before.
    """

    rounds: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    lost: int = 0
    printed: int = 0
    missing: int = 0
    disordered: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    unexplained: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        good = not self.unexplained and not self.lost and not self.disordered
        return good and self.acknowledged > 0 and self.missing > 0


class Printer:
    """Prints numbered lines all the time, to the client that is connected, if any. `times` has when it did so."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.0)
        self.port: int = self._listener.getsockname()[1]
        self.times: list[float] = []
        self.is_cut = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        line: socket.socket | None = None
        while not self._over.wait(PRINT_SECONDS):
            with suppress(OSError):
                newest, _ = self._listener.accept()
                if line is not None:
                    line.close()
                line = newest
            if self.is_cut and line is not None:
                line.close()
                line = None
            number = len(self.times)
            self.times.append(time.time())
            if line is not None:
                try:
                    line.sendall(b"%d\n" % number)
                except OSError:
                    line.close()
                    line = None
        if line is not None:
            line.close()


class RecordedServer:
    """The server of the campaign; it is started, killed and asked here."""

    def __init__(self, fleet: Path) -> None:
        self._command = [sys.executable, "-m", "fastflight", "serve", "--server", "grpc://127.0.0.1:0", "--fleet"]
        self._command.append(str(fleet))
        self.start()

    def start(self, killed_after: float | None = None) -> None:
        """Start it; with `killed_after`, first one that is killed after so many seconds, whether it listens or not."""
        if killed_after is not None:
            self._spawn()
            time.sleep(killed_after)
            self._end()
        self._spawn()
        self.client = FastFlightClient(_listening(self._process), timeout=CALL_SECONDS)

    def kill(self) -> None:
        self.client.close()
        self._end()

    def _spawn(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def reported(self) -> Recorded:
        """Return what the server reports of its recording."""
        return self.client.recordings()[0]

    def records(self) -> None:
        """Wait until rows are stored that were not before."""
        until(lambda: self.client.recordings())
        rows = self.reported().rows
        until(lambda: (now := self.reported()).rows > rows and now.state == "recording")

    def lacks(self, before: Recorded) -> int:
        """Return how many of the rows are not there that were reported `before`: later ones have higher numbers."""
        with self.client.recording("board", to_seq=before.next_seq - 1) as rows:
            found: int = sum(batch.num_rows for batch in rows)
        return before.rows - found


def _listening(server: subprocess.Popen[str]) -> str:
    """Return where it listens. `TransportError` if it does not."""
    assert server.stdout is not None
    patience = threading.Timer(START_SECONDS, server.kill)
    patience.daemon = True  # as the board's
    patience.start()
    try:
        said = server.stdout.readline()
    finally:
        patience.cancel()
        patience.join()
    if (location := re.search(r"grpc://127.0.0.1:\d+", said)) is None:
        raise TransportError("the server did not start", where="campaign")
    return location[0]


def campaign(folder: Path, faults: Sequence[str], chance: random.Random) -> GapOutcome:
    """Carry out these faults in turn, each for a random time, and compare what was printed and what is recorded."""
    outcome = GapOutcome()
    with ExitStack() as parts:
        board = Printer()
        parts.callback(board.close)
        disk = parts.enter_context(SmallDisk(folder / "disk", DISK_BYTES)) if "fill" in faults else None
        fleet = folder / "fleet.toml"
        fleet.write_text(FLEET.format(folder=(folder / "disk" / "kept").as_posix(), port=board.port))
        server = RecordedServer(fleet)
        parts.callback(lambda: server.kill())
        server.records()
        for fault in faults:
            seconds = chance.uniform(0, FAULT_SECONDS)
            if fault == "kill":
                deadline = time.monotonic() + chance.uniform(0, LIFE_SECONDS)
                reported = server.reported()
                while time.monotonic() < deadline:
                    reported = server.reported()
                server.kill()
                server.start(seconds if chance.random() < EARLY else None)
                outcome.lost += server.lacks(reported)
            else:
                _carry_out(fault, seconds, server, board, disk)
            server.records()
            outcome.rounds[fault] = outcome.rounds.get(fault, 0) + 1
        server.client.stop_recording("board")
        reported = server.reported()
        outcome.acknowledged = reported.rows
        outcome.lost += server.lacks(reported)
        with server.client.recording("board") as rows:
            found = [row for batch in rows for row in batch.to_pylist()]
            text = b"".join(row["data"] for row in found if row["direction"] == "rx")
            compare(board.times, text, rows.gaps, outcome)
    return outcome


def _carry_out(fault: str, seconds: float, server: RecordedServer, board: Printer, disk: SmallDisk | None) -> None:
    if fault == "cut":
        board.is_cut = True
        time.sleep(seconds)
        board.is_cut = False
    elif fault == "stop":
        server.client.stop_recording("board")
        time.sleep(seconds)
        server.client.start_recording("board")
    else:
        assert disk is not None
        disk.fill()
        until(lambda: server.client.recordings()[0].state != "recording")
        time.sleep(seconds)
        disk.empty()


def compare(times: Sequence[float], text: bytes, gaps: Sequence[Gap], outcome: GapOutcome) -> None:
    """Find the lines that are missing from `text`, and those of them that were printed in no gap."""
    numbers = [int(number) for number in LINE.findall(b"\n" + text)]
    outcome.disordered = sum(later <= earlier for earlier, later in pairwise(numbers))
    recorded = set(numbers)
    first, last = min(recorded), max(recorded)
    missing = [number for number in range(first, last) if number not in recorded]
    spans = [(gap.from_time.timestamp(), gap.to_time.timestamp()) for gap in gaps if gap.from_time and gap.to_time]
    outcome.printed, outcome.missing = last - first, len(missing)
    for gap in gaps:
        outcome.gaps[gap.why] = outcome.gaps.get(gap.why, 0) + 1
    outcome.unexplained = [
        number
        for number in missing
        if not any(start - TOLERANCE_SECONDS <= times[number] <= stop + TOLERANCE_SECONDS for start, stop in spans)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that all that is missing from a recording lies in a gap")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--fault", choices=FAULTS, action="append", help="repeatable; default: all")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    chance = random.Random(seed)
    print(f"seed {seed}", flush=True)
    faults = [chance.choice(arguments.fault or FAULTS) for _ in range(arguments.rounds)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = campaign(Path(folder), faults, chance)
    except TargetMissing as error:
        print(error)
        return 1
    print(outcome)
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    ending.like_ctrl_c()
    sys.exit(main())
