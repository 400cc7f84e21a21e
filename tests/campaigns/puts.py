"""Kills `fastflight put`, or its server, at a random moment of a write, and checks the file on the board.

    python -m tests.campaigns.puts --rounds 200 --seed 1

A server has a simulated board and the unix port. Each round replaces a file with the command, and kills the command or
the server while the command has the board. What must hold:

- The file is the old one or the new one, and the new one if the command has reported success.
- Next to it is at most one partial file.
- The next `put`, of the same content or of another, succeeds, and leaves no partial file.

Exit code 1: one of these did not hold, or no write was broken off.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.client import FastFlightClient
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns import engine
from tests.campaigns.faulting.program import Program
from tests.support.commands import FASTFLIGHT, Command
from tests.support.targets import unix_port
from tests.support.waiting import until

BOARDS = ("simulated", "unix")
PATH, PART = "/t.bin", "/.fastflight-"
# Two of them have room on the smaller board.
LARGEST_BYTES = 150_000
COMMAND_SECONDS = 120.0


@dataclass(slots=True)
class PutOutcome:
    """The rounds by what was killed, on which board, and which file the board had then; and what was wrong.

    `broken_off` counts the commands that had not succeeded before.
    """

    broken_off: int = 0
    rounds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.wrong and self.broken_off > 0


class Stage:
    """Two boards and their server, while the context lasts. `put` is the command that runs."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.content = folder / "content"
        self._folder = folder
        # How long a write has each board.
        self.takes = dict.fromkeys(BOARDS, 0.0)
        self._chance = chance

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            simulated = SimulatedBoard(self._folder / "simulated", listen="127.0.0.1:0")
            urls = {"simulated": f"socket://{stack.enter_context(simulated).path}"}
            urls["unix"] = stack.enter_context(unix_port())
            devices = [word for name, url in urls.items() for word in ("--device", f"{name}={url}")]
            arguments = ["serve", "--server", "grpc://127.0.0.1:0", *devices]
            self.server = Program("server", arguments, [r"listening on (\S+);"], self._folder / "server.log")
            self.serve()
            stack.callback(self.server.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def serve(self) -> None:
        (self._location,) = self.server.start()

    def client(self) -> FastFlightClient:
        return FastFlightClient(self._location, timeout=COMMAND_SECONDS)

    def files(self, board: str) -> tuple[bytes, int]:
        """Return the content of the file, and how many partial files the board has, once it is free."""
        with self.client() as client:
            read = self._folder / "read"
            # For half a minute after a killed server the board waits for more content, unless it is interrupted.
            client.get_file(board, PATH, read, interrupt=True)
            return read.read_bytes(), sum(entry.path.startswith(PART) for entry in client.ls(board))

    def begin(self, board: str) -> None:
        """Start a write of `content`, and wait until it has the board."""
        words = ["put", str(self.content), f"{board}:{PATH}", "--server", self._location, "--no-deflate"]
        self.put = Command(
            [*FASTFLIGHT, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with self.client() as client:
            until(lambda: held(client, board) or self.put.poll() is not None, COMMAND_SECONDS)

    def end(self) -> str:
        """Wait for the end of the command. Return its error, or an empty text."""
        _, error = self.put.communicate(timeout=COMMAND_SECONDS)
        return error.strip() or f"ended with {self.put.returncode}" if self.put.returncode else ""

    def wait(self, board: str) -> None:
        """Wait for a part of the time that a write takes."""
        self.begin(board)
        time.sleep(self._chance.uniform(0, self.takes[board]))


def held(client: FastFlightClient, board: str) -> bool:
    return any(each.holder for each in client.devices() if each.name == board)


def kill_put(stage: Stage, board: str) -> None:
    stage.wait(board)
    stage.put.kill()
    stage.end()


def kill_server(stage: Stage, board: str) -> None:
    stage.wait(board)
    stage.server.kill()
    stage.end()


FAULTS: dict[str, engine.Fault[Stage]] = {
    "put": engine.Fault(BOARDS, kill_put),
    "server": engine.Fault(BOARDS, kill_server, lambda stage, _: stage.serve()),
}


def campaign(folder: Path, rounds: int, seed: int) -> PutOutcome:
    """Break off writes, one after another, and check the boards."""
    outcome, chance = PutOutcome(), random.Random(seed)
    with Stage(folder, chance) as stage:
        for board in BOARDS:
            stage.content.write_bytes(chance.randbytes(LARGEST_BYTES))
            stage.begin(board)
            began = time.monotonic()
            with stage.client() as client:
                until(lambda: not held(client, board))  # noqa: B023
            stage.takes[board] = time.monotonic() - began
            outcome.wrong += filter(None, [stage.end()])
        for number in range(rounds):
            kind = list(FAULTS)[number % len(FAULTS)]
            strike = engine.Strike(stage, kind, FAULTS[kind], chance)
            old, _ = stage.files(strike.target)
            new = chance.randbytes(chance.randrange(LARGEST_BYTES // 2, LARGEST_BYTES))
            stage.content.write_bytes(new)
            strike.carry_out()
            found, parts = stage.files(strike.target)
            which = "old" if found == old else "new" if found == new else f"{len(found)} other bytes"
            outcome.rounds[f"{strike.what}, {which}"] += 1
            outcome.broken_off += stage.put.returncode != 0
            if which not in ("old", "new") or (stage.put.returncode == 0 and which == "old") or parts > 1:
                outcome.wrong.append(f"{number}, {strike.what}: {which}, and {parts} partial files")
            if chance.random() < 0.5:
                stage.content.write_bytes(new := chance.randbytes(LARGEST_BYTES))
            stage.begin(strike.target)
            if (error := stage.end()) or stage.files(strike.target) != (new, 0):
                outcome.wrong.append(f"{number}, {strike.what}, and again: {error or 'another file, or a partial one'}")
        outcome.wrong += stage.server.complaints()
    return outcome


if __name__ == "__main__":
    engine.command(
        __doc__,
        lambda folder, asked: campaign(folder, asked.rounds, asked.seed),
        engine.option("--rounds", 200, "how many writes are broken off"),
        seed=1,
    )
