"""The work that is struck, and how it is judged: by the files on the board, and by the numbers of the rows.

A work is carried out once under a fault, and then without one until it completes. `flaw` says what is wrong with its
result, completed or not: a file must be the old one or the new one, whole; rows must follow each other or be reported
as missing.
"""

from __future__ import annotations

import json
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from fastflight_benchmark.contents import KINDS, make
from tests.campaigns import engine
from tests.campaigns.faulting.stage import CLIENT_SERVER, FILES, TALKER, Stage
from tests.campaigns.faulting.talker import Kept, flaw, stretches

SMALLEST, LARGEST = 1_000, 20_000
# Of a session, so many rows; of a recording, so many numbers back.
ROWS = 80
BACK = 200
# Where a server's numbers begin anew (decision 0020).
RUN = 1_000_000
TREE = ("main.py", "lib/one.py", "lib/two.bin", "data/three.csv")
# What is to be kept meanwhile, and within which time: a line that was lost is tried again by itself.
GROWN_ROWS, GROWN_SECONDS = 60, 60.0


class Ended(Exception):
    """The work ended too early, with a documented reason. `code` names it in the tables."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code


class Work(ABC):
    """One piece of work on a stage. `board` is the device, `way` the hop by which it is asked for."""

    name: str
    board = FILES
    way = CLIENT_SERVER
    # Whether a digest stands over what moves, so that another bit must be noticed.
    is_verified = True
    writes = False

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.chance = chance
        self.mode: Literal["sync", "async"] = chance.choice(("sync", "async"))
        self.size = round(SMALLEST * (LARGEST / SMALLEST) ** chance.random())
        self.kind = chance.choice(KINDS)
        # Of how many bytes a fault's place is drawn.
        self.reach = self.size + 1_500

    @abstractmethod
    def carry_out(self) -> None:
        """Do the work. Raises what ends it too early."""

    @abstractmethod
    def flaw(self, completed: bool) -> str:
        """Return what is wrong with the result, or an empty text."""

    def content(self, number: int = 0) -> bytes:
        """The content that the result must have."""
        return make(self.kind, self.size + number)

    def client(self) -> FastFlightClient:
        """Return a client behind the proxy of the hop."""
        return self.stage.client(self.way)

    def local(self, name: str) -> Path:
        return self.stage.folder / "local" / name

    def on_board(self, name: str) -> Path:
        return self.stage.boards[FILES].folder / name

    def place(self, files: Mapping[Path, bytes]) -> None:
        """Put these files in place."""
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


class _Copy(Work):
    """Copies files from `given` to `taken`. Each must be the old one or the new one, whole."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        super().__init__(stage, chance)
        self.given, self.taken = self.paths()
        self.new = {name: self.content(number) for number, name in enumerate(self.given)}
        self.old = {name: make("python", 500 + number) for number, name in enumerate(self.given)}
        self.place({self.given[name]: data for name, data in self.new.items()})
        self.place({self.taken[name]: data for name, data in self.old.items()})

    @abstractmethod
    def paths(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        """Return, by name, the sources of the files and their destinations."""

    def flaw(self, completed: bool) -> str:
        for name, path in self.taken.items():
            lies = path.read_bytes() if path.exists() else None
            if lies != self.new[name] and (completed or lies != self.old[name]):
                found = "nothing" if lies is None else f"{len(lies)} bytes"
                return f"{name}: {found} where {'the new' if completed else 'the old or the new'} file should be"
        return ""


class Put(_Copy):
    name = "put"
    writes = True

    def paths(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        return {"t.bin": self.local("t.bin")}, {"t.bin": self.on_board("t.bin")}

    def carry_out(self) -> None:
        with self.client() as client:
            client.put_file(FILES, "/t.bin", self.given["t.bin"], mode=self.mode)


class Get(_Copy):
    name = "get"

    def paths(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        return {"s.bin": self.on_board("s.bin")}, {"s.bin": self.local("s.bin")}

    def carry_out(self) -> None:
        with self.client() as client:
            client.get_file(FILES, "/s.bin", self.taken["s.bin"], mode=self.mode)


class PutTree(_Copy):
    name = "put -r"
    writes = True

    def paths(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        self.size = self.size // len(TREE) + 1
        given, taken = self.local("tree"), self.on_board("app")
        return {name: given / name for name in TREE}, {name: taken / name for name in TREE}

    def carry_out(self) -> None:
        with self.client() as client:
            client.put_tree(FILES, "/app", self.local("tree"), mode=self.mode)


class GetTree(_Copy):
    name = "get -r"

    def paths(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        self.size = self.size // len(TREE) + 1
        given, taken = self.on_board("src"), self.local("back")
        return {name: given / name for name in TREE}, {name: taken / name for name in TREE}

    def carry_out(self) -> None:
        with self.client() as client:
            client.get_tree(FILES, "/src", self.local("back"), mode=self.mode)


class Rows(Work):
    """Rows of the talker, by number: `rows` are those that came last."""

    board = TALKER
    is_verified = False

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        super().__init__(stage, chance)
        self.reach = 4_000
        self.kept = Kept()
        # Numbers that have to be there once it has completed, or to be told as missing.
        self.asked = range(0)

    def take(self, seqs: Iterable[int], ways: Iterable[str], data: Iterable[bytes]) -> None:
        self.kept.rows.update((s, d if w == "rx" else b"") for s, w, d in zip(seqs, ways, data, strict=True))

    def flaw(self, completed: bool) -> str:
        missing = {seq for first, last in self.kept.missing for seq in range(first, last + 1)}
        present = sorted(self.kept.rows)
        if completed and (short := [seq for seq in self.asked if seq not in self.kept.rows and seq not in missing]):
            return f"{len(short)} of {len(self.asked)} rows did not come, the first is {short[0]}, and nothing says so"
        for one, other in zip(present, present[1:], strict=False):
            if other != one + 1 and not set(range(one + 1, other)) <= missing and other % RUN:
                return f"row {other} follows {one}, and nothing says that some are missing"
        # What happened between two rows of an outage is told by a message; there the board's lines are broken off.
        return next(filter(None, map(flaw, stretches(self.kept))), "") if not self.kept.cuts else ""


class Session(Rows):
    name = "session"

    def carry_out(self) -> None:
        self.kept = Kept()
        with self.client() as client, client.session(TALKER, limit_rows=ROWS, mode=self.mode) as rows:
            try:
                for batch in rows:
                    self.take(*(batch[key].to_pylist() for key in ("seq", "direction", "data")))
            finally:
                self.kept.missing = [(gap.first, gap.last) for gap in rows.gaps]
            if rows.summary["ended"] != "limit reached":
                raise Ended(f"ended: {rows.summary['ended']}")

    def flaw(self, completed: bool) -> str:
        return few(self.kept, completed) or super().flaw(completed)


class Recording(Rows):
    name = "recording"

    def carry_out(self) -> None:
        self.kept = Kept()
        with self.client() as client:
            reached = _grown(client)
            # Of what was recorded since the server started: before that lie numbers that were never given.
            self.asked = range(max(reached - BACK, reached - reached % RUN), reached)
            with client.recording(TALKER, from_seq=max(0, reached - BACK), to_seq=reached - 1, mode=self.mode) as rows:
                try:
                    for batch in rows:
                        self.take(*(batch[key].to_pylist() for key in ("seq", "direction", "data")))
                finally:
                    self.kept.missing = [(gap.first, gap.last) for gap in rows.gaps]
                self.kept.cuts = set(self.kept.rows)  # outages are told to who asks by Flight: `recorded` does
                if rows.summary["ended"] not in ("end of recording", "limit reached"):
                    raise Ended(f"ended: {rows.summary['ended']}")


def few(kept: Kept, completed: bool) -> str:
    """Return what is wrong if a session that reached its limit has too few rows; else an empty text."""
    fewer = completed and len(kept.rows) != ROWS
    return f"{len(kept.rows)} rows came of {ROWS}, and then an end in order" if fewer else ""


def _grown(client: FastFlightClient) -> int:
    """Wait until so many more rows are stored. Return the number after the last one."""
    deadline = time.monotonic() + GROWN_SECONDS
    begun = -1
    while time.monotonic() < deadline:
        reached = max((each.next_seq for each in client.recordings() if each.name == TALKER), default=0)
        begun = reached if begun < 0 else begun
        if reached >= begun + GROWN_ROWS:
            return reached
        time.sleep(0.02)
    raise Ended("nothing recorded", f"in {GROWN_SECONDS:g} s")


def code_of(error: BaseException) -> str:
    """Return the code of a documented error; empty for all others."""
    return error.code if isinstance(error, Ended) else engine.code_of(error)


def code_of_answer(status: int, body: bytes) -> Ended | None:
    """Return the documented error in an HTTP answer, or None."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        return None
    code = told.get("code") if isinstance(told, dict) else None
    if not isinstance(code, str) or status == 500 or not re.fullmatch(r"[a-z_.]+", code):
        return None
    if code == FastFlightError.code:  # as in `code_of`
        return None
    return Ended(f"{status} {code}", str(told.get("text", "")))
