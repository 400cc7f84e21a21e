"""Kills `fastflight put`, or its server, at a random moment of a write, and checks the file on the board.

    python -m tests.campaigns puts --rounds 200 --seed 1

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
from collections.abc import Callable

from fastflight.client import FastFlightClient
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns.engine import Campaign, Fault
from tests.campaigns.faulting.program import Program
from tests.support.commands import FASTFLIGHT, Command
from tests.support.targets import unix_port
from tests.support.waiting import until

BOARDS = ("simulated", "unix")
PATH, PART = "/t.bin", "/.fastflight-"
# Two of them have room on the smaller board.
LARGEST_BYTES = 150_000
COMMAND_SECONDS = 120.0


class Puts(Campaign):
    """A server with two boards. `_put` is the command that runs."""

    name = "puts"
    rounds = 200
    needed = ("broken off",)

    def start(self) -> None:
        self._content = self.folder / "content"
        simulated = SimulatedBoard(self.folder / "simulated", listen="127.0.0.1:0")
        urls = {"simulated": f"socket://{self.stack.enter_context(simulated).path}"}
        urls["unix"] = self.stack.enter_context(unix_port())
        devices = [word for name, url in urls.items() for word in ("--device", f"{name}={url}")]
        arguments = ["serve", "--server", "grpc://127.0.0.1:0", *devices]
        self._server = Program("server", arguments, [r"listening on (\S+);"], self.folder / "server.log")
        self.programs.append(self._server)
        self._serve()
        self.stack.callback(self._server.kill)
        # How long a write has each board.
        self._takes = {board: self._measured(board) for board in BOARDS}

    def carry_out(self, number: int, chance: random.Random) -> None:
        board = chance.choice(BOARDS)
        kill, mend = ((self._kill_put, lambda: None), (self._kill_server, self._serve))[number % 2]
        old, _ = self._files(board)
        new = self._write_content(chance, chance.randrange(LARGEST_BYTES // 2, LARGEST_BYTES))
        wait = chance.uniform(0, self._takes[board] * len(new) / LARGEST_BYTES)
        self.strike(Fault(kill.__name__.strip("_"), board, lambda: self._break_off(board, wait, kill), mend))
        found, partial = self._files(board)
        which = "old" if found == old else "new" if found == new else f"{len(found)} other bytes"
        self.counts[f"then the {which} file"] += 1
        self.counts["broken off"] += self._put.returncode != 0
        if which not in ("old", "new") or (self._put.returncode == 0 and which == "old"):
            self.violate("the file is the old or the new one", f"{board}: {which}, exit code {self._put.returncode}")
        if partial > 1:
            self.violate("at most one partial file", f"{board}: {partial}")
        if chance.random() < 0.5:
            new = self._write_content(chance, LARGEST_BYTES)
        self._begin(board)
        if (error := self._end()) or self._files(board) != (new, 0):
            self.violate("the next write succeeds", f"{board}: {error or 'another file, or a partial one'}")

    def _measured(self, board: str) -> float:
        self._write_content(random.Random(board), LARGEST_BYTES)
        self._begin(board)
        began = time.monotonic()
        with self._client() as client:
            until(lambda: not held(client, board))
        seconds = time.monotonic() - began
        if error := self._end():
            raise AssertionError(error)
        return seconds

    def _write_content(self, chance: random.Random, size: int) -> bytes:
        self._content.write_bytes(content := chance.randbytes(size))
        return content

    def _serve(self) -> None:
        (self._location,) = self._server.start()

    def _client(self) -> FastFlightClient:
        return FastFlightClient(self._location, timeout=COMMAND_SECONDS)

    def _files(self, board: str) -> tuple[bytes, int]:
        """Return the content of the file, and how many partial files the board has, once it is free."""
        with self._client() as client:
            read = self.folder / "read"
            # For half a minute after a killed server the board waits for more content, unless it is interrupted.
            client.get_file(board, PATH, read, interrupt=True)
            return read.read_bytes(), sum(entry.path.startswith(PART) for entry in client.ls(board))

    def _begin(self, board: str) -> None:
        """Start a write of the content, and wait until it has the board."""
        words = ["put", str(self._content), f"{board}:{PATH}", "--server", self._location, "--no-deflate"]
        self._put = Command(
            [*FASTFLIGHT, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with self._client() as client:
            until(lambda: held(client, board) or self._put.poll() is not None, COMMAND_SECONDS)

    def _end(self) -> str:
        """Wait for the end of the command. Return its error, or an empty text."""
        _, error = self._put.communicate(timeout=COMMAND_SECONDS)
        return error.strip() or f"ended with {self._put.returncode}" if self._put.returncode else ""

    def _break_off(self, board: str, wait: float, kill: Callable[[], None]) -> bool:
        """Kill something in the middle of a write. Return whether the command had not succeeded before."""
        self._begin(board)
        time.sleep(wait)
        kill()
        self._end()
        return self._put.returncode != 0

    def _kill_put(self) -> None:
        self._put.kill()

    def _kill_server(self) -> None:
        self._server.kill()


def held(client: FastFlightClient, board: str) -> bool:
    return any(each.holder for each in client.devices() if each.name == board)


CAMPAIGN = Puts
