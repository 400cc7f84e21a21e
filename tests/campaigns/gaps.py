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

import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from fastflight import FastFlightClient
from fastflight.client.answers import Recorded
from fastflight.gap import Gap
from tests.campaigns import engine
from tests.campaigns.faulting.program import Program
from tests.support.printing_board import PrintingBoard
from tests.support.small_disk import SmallDisk
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
CALL_SECONDS = 60.0
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

    rounds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: int = 0
    printed: int = 0
    missing: int = 0
    disordered: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    unexplained: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        good = not self.unexplained and not self.lost and not self.disordered
        return good and self.acknowledged > 0 and self.missing > 0


class Printer(PrintingBoard):
    """Prints numbered lines all the time, to the client that came last, if any. `times` has when it did so."""

    period_seconds = PRINT_SECONDS

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.is_cut = False

    def tick(self) -> None:
        for connection in list(self.connections if self.is_cut else self.connections[:-1]):
            self.close(connection)
        number = len(self.times)
        self.times.append(time.time())
        for connection in list(self.connections):
            self.print(connection, b"%d\n" % number)


class Stage:
    """A recording server, its board and its disk, while the context lasts. Counts the rows that a kill has lost."""

    def __init__(self, folder: Path, chance: random.Random, *, small_disk: bool) -> None:
        self.board = Printer()
        self.lost = 0
        self._chance = chance
        self._stack = ExitStack()
        with self._stack:
            self._stack.enter_context(self.board)
            self.disk = self._stack.enter_context(SmallDisk(folder / "disk", DISK_BYTES)) if small_disk else None
            fleet = folder / "fleet.toml"
            fleet.write_text(FLEET.format(folder=(folder / "disk" / "kept").as_posix(), port=self.board.port))
            arguments = ["serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(fleet)]
            self._server = Program("server", arguments, [r"listening on (\S+);"], folder / "server.log")
            self._start()
            self._stack.callback(self.kill)
            self.records()
            self._stack = self._stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.client = FastFlightClient(self._server.start()[0], timeout=CALL_SECONDS)

    def kill(self) -> None:
        self.client.close()
        self._server.kill()

    def reported(self) -> Recorded:
        """Return what the server reports of its recording."""
        return self.client.recordings()[0]

    def records(self) -> None:
        """Wait until rows are stored that were not before."""
        until(lambda: self.client.recordings())
        rows = self.reported().rows
        until(lambda: (now := self.reported()).rows > rows and now.state == "recording")

    def check(self, before: Recorded) -> None:
        """Count the rows that were reported `before` and are not there: later ones have higher numbers."""
        with self.client.recording("board", to_seq=before.next_seq - 1) as rows:
            self.lost += before.rows - sum(batch.num_rows for batch in rows)

    def kill_and_restart(self) -> None:
        """Kill the server after a moment, sometimes another one while it starts, and check the reported rows."""
        deadline = time.monotonic() + self._chance.uniform(0, LIFE_SECONDS)
        reported = self.reported()
        while time.monotonic() < deadline:
            reported = self.reported()
        self.kill()
        if self._chance.random() < EARLY:
            self._server.spawn()
            time.sleep(self._chance.uniform(0, FAULT_SECONDS))
            self._server.kill()
        self._start()
        self.check(reported)

    def cut(self, is_cut: bool) -> None:
        self.board.is_cut = is_cut

    def fill_disk(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        until(lambda: self.reported().state != "recording")

    def empty_disk(self) -> None:
        assert self.disk is not None
        self.disk.empty()


LASTING = (0.0, FAULT_SECONDS)
FAULTS: dict[str, engine.Fault[Stage]] = {
    "kill": engine.Fault(("server",), lambda stage, _: stage.kill_and_restart()),
    "cut": engine.Fault(("line",), lambda stage, _: stage.cut(True), lambda stage, _: stage.cut(False), LASTING),
    "stop": engine.Fault(
        ("board",),
        lambda stage, board: stage.client.stop_recording(board),
        lambda stage, board: stage.client.start_recording(board),
        LASTING,
    ),
    "fill": engine.Fault(("disk",), lambda stage, _: stage.fill_disk(), lambda stage, _: stage.empty_disk(), LASTING),
}


def campaign(folder: Path, kinds: Sequence[str], rounds: int, seed: int) -> GapOutcome:
    """Carry out faults of these kinds one after another, and compare what was printed and what is recorded."""
    outcome, chance = GapOutcome(), random.Random(seed)
    faults = [chance.choice(kinds) for _ in range(rounds)]
    with closing(Stage(folder, chance, small_disk="fill" in faults)) as stage:
        for kind in faults:
            engine.Strike(stage, kind, FAULTS[kind], chance).carry_out()
            stage.records()
            outcome.rounds[kind] += 1
        stage.client.stop_recording("board")
        reported = stage.reported()
        outcome.acknowledged = reported.rows
        stage.check(reported)
        outcome.lost = stage.lost
        with stage.client.recording("board") as rows:
            found = [row for batch in rows for row in batch.to_pylist()]
            text = b"".join(row["data"] for row in found if row["direction"] == "rx")
            compare(stage.board.times, text, rows.gaps, outcome)
    return outcome


def compare(times: Sequence[float], text: bytes, gaps: Sequence[Gap], outcome: GapOutcome) -> None:
    """Find the lines that are missing from `text`, and those of them that were printed in no gap."""
    numbers = [int(number) for number in LINE.findall(b"\n" + text)]
    outcome.disordered = sum(later <= earlier for earlier, later in pairwise(numbers))
    recorded = set(numbers)
    first, last = min(recorded), max(recorded)
    missing = [number for number in range(first, last) if number not in recorded]
    spans = [(gap.from_time.timestamp(), gap.to_time.timestamp()) for gap in gaps if gap.from_time and gap.to_time]
    outcome.printed, outcome.missing = last - first, len(missing)
    outcome.gaps = Counter(gap.why for gap in gaps)
    outcome.unexplained = [
        number
        for number in missing
        if not any(start - TOLERANCE_SECONDS <= times[number] <= stop + TOLERANCE_SECONDS for start, stop in spans)
    ]


if __name__ == "__main__":
    engine.command(
        __doc__,
        lambda folder, asked: campaign(folder, asked.fault or list(FAULTS), asked.rounds, asked.seed),
        engine.option("--rounds", 25),
        engine.option("--fault", None, "repeatable; default: all", choices=FAULTS, action="append"),
    )
