"""Kills a recording server at random moments, and checks what the next server replays.

    python -m tests.campaigns.server_kills --runs 50

A board prints numbered lines without end; a server records them and reports how far it is. After a random time, in some
runs before the server listens, it is killed (SIGKILL; TerminateProcess on Windows). The next server replays from the
same folder. A row below the number that was reported as stored is lost if it is missing; bytes that the board did not
send in this order are wrong. Exit code 1: something was lost or wrong, a server had ended before it was killed, or no
row was ever reported as stored.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from fastflight import FastFlightClient
from fastflight.errors import TransportError
from fastflight_benchmark import ending

FLEET = """
[recordings]
folder = "kept"
sync_ms = 20
[devices.board]
url = "socket://127.0.0.1:{port}"
record = true
"""
# Lines come in groups, about 20,000 a second: several appends in each sync, and none that the server cannot take.
GROUP_LINES = 40
GROUP_SECONDS = 0.002
# The longest that a server lives after it listens; and, of one in five, after it was started.
LIFE_SECONDS = 0.5
BIRTH_SECONDS = 3.0
# One that does not listen after so long, on a busy machine, never will; an answer takes no longer either.
START_SECONDS = CALL_SECONDS = 60.0


@dataclass(slots=True)
class ServerKillOutcome:
    """What was found. `acknowledged` and `lost` count rows, `wrong` runs, `missed` servers that ended early."""

    kills: int = 0
    missed: int = 0
    early: int = 0
    acknowledged: int = 0
    read_bytes: int = 0
    lost: int = 0
    wrong: int = 0

    @property
    def clean(self) -> bool:
        return not self.lost and not self.wrong and not self.missed


class NumberedLines:
    """Prints to each client a stream of its own, from the beginning."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # A script that is interrupted just here has nobody who would end it.
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self._over = threading.Event()
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        for number in count():
            line, _ = self._listener.accept()
            with line, suppress(OSError):
                lines = stream(number)
                while not self._over.wait(GROUP_SECONDS):
                    line.sendall(b"".join(next(lines) for _ in range(GROUP_LINES)))
            if self._over.is_set():
                return


def stream(number: int) -> Iterator[bytes]:
    """Yield what the board prints on connection `number`."""
    return (f"{number}:{i}:".encode() + b"x" * (i * 7919 % 60) + b"\n" for i in count())


def said(data: bytes) -> bool:
    """Return whether this is the beginning of what a board prints on a connection."""
    number, _, _ = data.partition(b":")
    if not number.isdigit():
        return not data
    expected, size = [], 0
    for line in stream(int(number)):
        expected.append(line)
        size += len(line)
        if size >= len(data):
            break
    return b"".join(expected).startswith(data)


def campaign(folder: Path, runs: int, seed: int, progress: Callable[[ServerKillOutcome], None]) -> ServerKillOutcome:
    """Kill `runs` servers. Each one that listens is checked for what those before it have stored."""
    chance = random.Random(seed)
    outcome = ServerKillOutcome()
    board = NumberedLines()
    (folder / "fleet.toml").write_text(FLEET.format(port=board.port))
    command = [sys.executable, "-m", "fastflight", "serve", "--server", "grpc://127.0.0.1:0"]
    # From where it was not looked at, and up to where rows were told to be kept.
    start = promised = 0
    try:
        while True:
            arguments = [*command, "--fleet", str(folder / "fleet.toml")]
            server = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                assert server.stdout is not None
                if outcome.kills < runs and chance.random() < 0.2:
                    time.sleep(chance.uniform(0, BIRTH_SECONDS))
                    outcome.early += 1
                else:
                    with FastFlightClient(_listening(server), timeout=CALL_SECONDS) as client:
                        start = promised = check(client, start, promised, outcome)
                        if outcome.kills == runs:
                            return outcome
                        deadline = time.monotonic() + chance.uniform(0, LIFE_SECONDS)
                        while time.monotonic() < deadline:
                            promised = max(promised, client.recordings()[0].next_seq)
                outcome.missed += server.poll() is not None
            finally:
                server.kill()
                server.wait()
                assert server.stdout is not None
                server.stdout.close()
            outcome.kills += 1
            progress(outcome)
    finally:
        board.close()


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


def check(client: FastFlightClient, start: int, promised: int, outcome: ServerKillOutcome) -> int:
    """Check the recording from number `start` on. Return where its last run begins, which may still continue."""
    runs: list[list[bytes]] = []
    first = following = start
    told = -1
    with client.recording("board", from_seq=start) as rows:
        for batch in rows:
            for seq, data in zip(batch["seq"].to_pylist(), batch["data"].to_pylist(), strict=True):
                if seq != following or not runs:
                    runs.append([])
                    first = seq
                runs[-1].append(data)
                following = seq + 1
                if seq < promised:
                    outcome.acknowledged += 1
                    told = seq
        outcome.lost += sum(gap.last - gap.first + 1 for gap in rows.gaps)
    outcome.lost += max(0, promised - start and promised - 1 - told)
    outcome.wrong += sum(not said(b"".join(run)) for run in runs)
    outcome.read_bytes += sum(len(data) for run in runs for data in run)
    return first


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a recording server at random points, and replay what is left")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--output", type=Path, default=None, help="write the outcome as JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}")

    def progress(outcome: ServerKillOutcome) -> None:
        if outcome.kills % 10 == 0 or not outcome.clean:
            print(summary(outcome), flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        outcome = campaign(Path(temporary), arguments.runs, seed, progress)
    print(summary(outcome))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps({"seed": seed, **asdict(outcome)}, indent=1) + "\n", encoding="utf-8")
    return 0 if outcome.clean and outcome.acknowledged else 1


def summary(outcome: ServerKillOutcome) -> str:
    return (
        f"{outcome.kills} kills, {outcome.early} at the start, {outcome.missed} missed: {outcome.acknowledged} rows "
        f"acknowledged, {outcome.lost} lost; {outcome.wrong} wrong runs in {outcome.read_bytes} bytes read"
    )


if __name__ == "__main__":
    ending.like_ctrl_c()
    sys.exit(main())
