"""What clients do while faults are injected, and how it is judged.

Each work runs in a thread of its own until `stop` is set. It asks any server, and begins again when an error ends it.
An error of fastflight's is an outcome and is counted by its class. One that blames the request is a flaw, and so is all
else.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from fastflight.errors import FastFlightError, RequestError, UnknownName
from fastflight.gap import Gap
from fastflight.service.requests import Recording
from tests.campaigns.clustering.stage import ClusterStage, Server
from tests.campaigns.faulting.talker import Kept, flaw, stretches

# A stream with a limit ends soon after it, or with an error: after this time nothing is said about it any more.
HUNG_SECONDS = 90.0
WRITE_SECONDS, FOLLOW_SECONDS = 0.7, 3.0
PAUSE_SECONDS = 0.1


class Work:
    """Something that a client does over and over. `ended` counts how: `whole`, or the class of the error."""

    name = ""

    def __init__(self, stage: ClusterStage, device: str, chance: random.Random) -> None:
        self.stage, self.device, self.chance = stage, device, chance
        self.ended: Counter[str] = Counter()
        self.flaws: list[str] = []
        self._began = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.name} {device}")
        self._thread.start()

    def end(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(HUNG_SECONDS)
        if self._thread.is_alive():
            self.flaws.append(f"{self.name} of {self.device} never ended")

    def carry_out(self, server: Server) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            server = self.stage.servers[self.chance.choice(list(self.stage.servers))]
            try:
                self.carry_out(server)
            except UnknownName as error:  # of a board, before the first row of its recording
                self.ended[type(error).__name__] += 1
            except RequestError as error:  # nothing is wrong with the request
                self.flaws.append(f"{self.name} of {self.device} at {server.name}: {type(error).__name__}: {error}")
            except FastFlightError as error:
                self.ended[type(error).__name__] += 1
            except Exception as error:  # judged as a flaw
                self.flaws.append(f"{self.name} of {self.device} at {server.name}: {type(error).__name__}: {error}")
            else:
                self.ended["whole"] += 1
            if (seconds := time.monotonic() - began) > HUNG_SECONDS:
                self.flaws.append(f"{self.name} of {self.device} at {server.name} took {seconds:.0f} s")
            self._stop.wait(PAUSE_SECONDS)


class Writer(Work):
    """Writes to the board, which counts who writes."""

    name = "writer"

    def carry_out(self, server: Server) -> None:
        with server.client() as client:
            interaction = client.interact(self.device)
            try:
                deadline = time.monotonic() + WRITE_SECONDS
                while time.monotonic() < deadline:
                    interaction.send(b"w")
                    time.sleep(0.02)
                interaction.done()
                while interaction.receive() is not None:
                    pass
            finally:
                interaction.cancel()
                interaction.settle()


class Follower(Work):
    """Reads the live session. Its rows follow each other, but for what a note says."""

    name = "follower"

    def carry_out(self, server: Server) -> None:
        kept = Kept()
        try:
            with server.client() as client:
                session = client.session(self.device, reconnect=True, limit_seconds=FOLLOW_SECONDS)
                for batch, note in session.pieces():
                    if note is not None and "gap" in note and note["gap"]["rows"] is None:
                        kept.cuts.add(note["gap"]["first"])
                    if batch is not None:
                        self._keep(kept, batch)
        finally:
            self.flaws += [f"live rows of {self.device}: {found}" for found in map(flaw, stretches(kept)) if found]

    def _keep(self, kept: Kept, batch: pa.RecordBatch) -> None:
        for seq, data in received(batch):
            if kept.rows and seq <= max(kept.rows):
                self.flaws.append(f"live rows of {self.device}: {seq} came after {max(kept.rows)}")
            kept.rows[seq] = data


class Auditor(Work):
    """Reads what servers say is stored, and remembers it: all of it must be there at the end, once."""

    name = "auditor"

    def __init__(self, stage: ClusterStage, device: str, chance: random.Random) -> None:
        self.kept = Kept()
        # As many rows were said to be stored. The number after the last row that was read.
        self.promised = self.read = 0
        super().__init__(stage, device, chance)

    @property
    def acknowledged(self) -> int:
        return len(self.kept.rows)

    def carry_out(self, server: Server) -> None:
        self.promised = max(self.promised, promised_rows(server, self.device))
        rows, missing = replay(server, self.device, self.read)
        found = self.compare(rows, missing, self.read)
        if found:  # rows that a server had when it was killed come late, and stand before others
            rows, missing = replay(server, self.device, 0)
            found = self.compare(rows, missing, 0)
        self.flaws += found
        self.kept.rows.update(rows)
        self.read = max([self.read, *(seq + 1 for seq in rows)])

    def compare(self, rows: dict[int, bytes], missing: list[Gap], start: int) -> list[str]:
        """Return what is wrong with a replay from number `start` on."""
        found = [
            f"{self.device}: rows {gap.first} to {gap.last} are damaged" for gap in missing if gap.why == "damaged"
        ]
        lost = [seq for seq, data in self.kept.rows.items() if seq >= start and rows.get(seq) != data]
        if lost:
            found.append(f"{len(lost)} acknowledged rows of {self.device} are lost or differ, the first is {min(lost)}")
        # Gaps are no excuse: what was stored once is not one of them.
        count = len(self.kept.rows.keys() | rows.keys())
        if count < self.promised:
            found.append(f"{self.promised - count} of {self.promised} stored rows of {self.device} are lost")
        return found


def promised_rows(server: Server, device: str) -> int:
    """Return how many rows of a recording are stored, as a server says. An error if it cannot ask NATS."""
    with server.client() as client:
        return max(0, int(client._connection.info(Recording(name=device)).total_records))


def replay(server: Server, device: str, start: int) -> tuple[dict[int, bytes], list[Gap]]:
    """Return the rows of the recording from `start` on, and what is said to be missing."""
    rows: dict[int, bytes] = {}
    with server.client() as client:
        stream = client.recording(device, from_seq=start)
        for batch in stream:
            for seq, data in received(batch):
                if seq in rows:
                    raise AssertionError(f"row {seq} of {device} came twice in one replay")
                rows[seq] = data
        return rows, list(stream.gaps)


def received(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each row, and what the board sent: nothing in a row of what was sent to it."""
    for seq, way, data in zip(*(batch[key].to_pylist() for key in ("seq", "direction", "data")), strict=True):
        yield seq, data if way == "rx" else b""


def final_flaws(auditor: Auditor, server: Server) -> list[str]:
    """Read the whole recording again, and judge it: rows, numbers and contents."""
    rows, missing = replay(server, auditor.device, 0)
    found = auditor.compare(rows, missing, 0)
    if len(rows) < auditor.promised:
        found.append(f"{auditor.promised - len(rows)} of {auditor.promised} stored rows are not read in one go")
    kept = Kept(rows)
    found += [f"recording of {auditor.device}: {each}" for each in map(flaw, stretches(kept)) if each]
    lines = Counter(line for part in stretches(kept) for line in part.split(b"\r\n")[1:-1] if line)
    twice = [line for line, count in lines.items() if count > 1]
    if twice:
        found.append(f"recording of {auditor.device}: {len(twice)} lines are there twice, as {twice[0][:20]!r}")
    return found
