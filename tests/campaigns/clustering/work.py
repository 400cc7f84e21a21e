"""What clients do while faults are injected, and the invariants of what they receive.

Each work asks any server, again and again. A documented error may end it, unless it blames the request.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from fastflight.errors import RequestError, UnknownName
from fastflight.gap import Gap
from fastflight.service.requests import Recording
from tests.campaigns import engine
from tests.campaigns.clustering.stage import ClusterStage, Server
from tests.campaigns.faulting.talker import Kept, flaw, stretches

WRITE_SECONDS, FOLLOW_SECONDS = 0.7, 3.0
PAUSE_SECONDS = 0.1


class Work(engine.Worker):
    """What a client does with a device, at any of the servers."""

    kind = ""
    # A stream with a limit ends soon after it, or with an error.
    hung_seconds = 90.0

    def __init__(self, stage: ClusterStage, device: str, seed: object) -> None:
        super().__init__(f"{self.kind} of {device}", self._ask_any, lambda: PAUSE_SECONDS)
        self.stage, self.device = stage, device
        self._chance = random.Random(f"{seed} {self.name}")

    def _ask_any(self) -> None:
        self.carry_out(self.stage.servers[self._chance.choice(list(self.stage.servers))])

    def carry_out(self, server: Server) -> None:
        raise NotImplementedError

    def accepts(self, error: Exception) -> str:
        # A board is unknown before the first row of its recording. Nothing else is wrong with the request.
        blames = isinstance(error, RequestError) and not isinstance(error, UnknownName)
        return "" if blames else super().accepts(error)


class Writer(Work):
    """Writes to the board, which counts who writes."""

    kind = "writer"

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

    kind = "follower"

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

    kind = "auditor"

    def __init__(self, stage: ClusterStage, device: str, seed: object) -> None:
        super().__init__(stage, device, seed)
        self.kept = Kept()
        # As many rows were said to be stored. The number after the last row that was read.
        self.promised = self.read = 0

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
