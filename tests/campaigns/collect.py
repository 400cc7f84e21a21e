"""Kills `fastflight collect`, or the board, at random moments, and checks that each line was stored once.

    python -m tests.campaigns.collect --kills 200

A program on a simulated board, in a process of its own, appends numbered lines to a log while the agent runs beside it.
Commands collect the log again and again. After a random time either the command or the board is killed (SIGKILL;
TerminateProcess on Windows) and started again, each of them so often. At the end the log is collected once more.

The program appends each line to a second file as well, which nobody collects, after the log. So each line of that file
must have been collected, once and in order, and at most one more for each start of the board: the program was killed
between its two files. Exit code 1: a line is missing, comes twice or was never written, or nothing was collected.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns import engine

PROGRAM = """\
import asyncio, os
import fastflight_agent

try:
    with open('/boots') as file:
        boot = int(file.read()) + 1
except (OSError, ValueError):
    boot = 1
with open('/boots.new', 'w') as file:
    file.write(str(boot))
os.rename('/boots.new', '/boots')

async def main():
    asyncio.create_task(fastflight_agent.task())
    number = 0
    while True:
        line = '%06d,%06d,21.5\\n' % (boot, number)
        for path in ('/log.csv', '/written.csv'):
            with open(path, 'a') as file:
                file.write(line)
        number += 1
        await asyncio.sleep_ms(2)

asyncio.run(main())
"""
# The longest that a command or a board lives before it is killed: a collection takes about half a second.
LIFE_SECONDS = 1.5
# A loaded machine takes this long to start a process, at worst.
START_SECONDS = 60.0
# How often the last collection may be tried, on a loaded machine.
LAST_ATTEMPTS = 10


@dataclass(slots=True)
class CollectOutcome:
    """What the campaign found."""

    command_kills: int = 0
    board_kills: int = 0
    collections: int = 0
    parts: int = 0
    lines: int = 0
    lost: int = 0
    twice: int = 0
    unwritten: int = 0
    between_files: int = 0

    @property
    def clean(self) -> bool:
        return self.lines > 0 and not (self.lost or self.twice or self.unwritten)


class Bench:
    """A board in a process of its own, and commands that collect its log."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "board"
        self.stored = folder / "stored"
        self.files.mkdir()
        agent = resources.files("fastflight.device") / "agent/fastflight_agent.py"
        (self.files / "fastflight_agent.py").write_bytes(agent.read_bytes())
        (self.files / "main.py").write_text(PROGRAM)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.board = SimulatedBoard(self.files, place=("--listen", f"127.0.0.1:{self.port}"))
        self.board.start()

    def kill_board(self) -> None:
        self.board.stop()
        self.board.start()

    def command(self) -> subprocess.Popen[bytes]:
        url = f"socket://127.0.0.1:{self.port}"
        arguments = ["collect", ":/log.csv", "--to", str(self.stored), "--device", url, "--agent"]
        command = [sys.executable, "-W", "ignore", "-m", "fastflight", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def collect(self) -> None:
        """Collect the log without a kill."""
        for _ in range(LAST_ATTEMPTS):
            command = self.command()
            said = command.communicate(timeout=START_SECONDS)[1].decode()
            if command.returncode == 0:
                return
        raise RuntimeError(f"the last collection failed: {said}")


def campaign(folder: Path, kills: int, seed: int) -> CollectOutcome:
    """Kill each side so often, collect once more, and check what was stored."""
    chance, outcome = random.Random(seed), CollectOutcome()
    bench = Bench(folder)
    try:
        command = bench.command()
        while outcome.command_kills < kills or outcome.board_kills < kills:
            time.sleep(chance.uniform(0.0, LIFE_SECONDS))
            if outcome.board_kills < kills and (chance.random() < 0.5 or outcome.command_kills >= kills):
                bench.kill_board()
                outcome.board_kills += 1
            elif command.poll() is None and outcome.command_kills < kills:
                command.kill()
                outcome.command_kills += 1
            if command.poll() is not None:
                command.communicate()
                outcome.collections += command.returncode == 0
                command = bench.command()
        command.communicate(timeout=START_SECONDS)
        bench.collect()
        outcome.collections += 1
    finally:
        bench.board.stop()
    check(bench, outcome)
    return outcome


def check(bench: Bench, outcome: CollectOutcome) -> None:
    """Compare the lines that were stored, and those still on the board, with those that the program wrote."""
    parts = sorted((bench.stored / "board" / "log.csv").glob("*.csv"))
    left = sorted(bench.files.glob("log.csv*"))
    lines = [line for path in (*parts, *left) for line in path.read_text().splitlines()]
    written = (bench.files / "written.csv").read_text().splitlines()
    outcome.parts = len(parts)
    outcome.lines = len(lines)
    outcome.twice = len(lines) - len(set(lines)) + (lines != sorted(lines))
    outcome.lost = len(set(written) - set(lines))
    extra = sorted(set(lines) - set(written))
    outcome.between_files = len({line[:6] for line in extra})
    outcome.unwritten = len(extra) - outcome.between_files


if __name__ == "__main__":
    engine.command(
        __doc__,
        lambda folder, asked: campaign(folder, asked.kills, asked.seed),
        engine.option("--kills", 200, "of each side"),
        seed=1,
    )
