"""Sends SIGTERM to a server under full load: it must end in time, lose nothing, and the next server must continue.

    python -m tests.campaigns.drains --runs 5

A server records 20 boards: most print, some have files and a REPL, one is a child process. Clients read, follow, write,
use a REPL, and come by HTTP and WebSocket; some do not read, and one writes and falls silent. At a random moment the
server gets SIGTERM. Then a new server checks the recordings, the files and the boards. Exit code 1: something did not
hold. Linux and macOS; loopback only; ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer

from fastflight.app.process import END_SECONDS
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError, FileMissing
from fastflight_benchmark import ending
from fastflight_benchmark.printing import printing
from fastflight_benchmark.printing_boards import Options
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns.drain_crowd import (
    READ_ROWS,
    READINGS,
    SILENT,
    WRITTEN,
    DrainCrowd,
    DrainedServer,
    Promised,
    written,
)
from tests.campaigns.faulting.program import Program

HOST = "127.0.0.1"
# Boards with files: for readers and writers, one that is typed to, one whose writer falls silent.
SHARED_BOARDS = ("files-0", "files-1", "files-2")
TYPED, HELD, CHILD = "typed", "held", "child"
ROWS_PER_SECOND = 20.0
FILE = "n,x\n" + "".join(f"{number},{number * 7919 % 1000}\n" for number in range(READ_ROWS))
OLD = b"the old one"
LISTENING = [rf"listening on (grpc://{HOST}:\d+)", rf"listening on (http://{HOST}:\d+)"]
# Every client has done its thing once by then, on a busy machine.
BEGUN_SECONDS = 120.0
# After that, the moment of the signal.
MOMENT_SECONDS = 3.0
# A client of a server that is gone notices it at once.
JOIN_SECONDS = 20.0
# Beyond the cap that the server sets itself, to measure by how much it is missed.
LATE_SECONDS = 20.0
NUMBER = re.compile(rb'"n": (\d+)')


@dataclass(slots=True)
class Run:
    """One run: how long the shutdown took, the counted rows, and what is wrong (`amiss`), in words."""

    seconds: float = 0.0
    code: int | None = None
    rows_written: int = 0
    rows_recorded: int = 0
    rows_read: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    amiss: list[str] = field(default_factory=list)

    def hold(self, held: bool, otherwise: str) -> None:
        if not held:
            self.amiss.append(otherwise)


@contextlib.contextmanager
def boards(folder: Path) -> Iterator[dict[str, str]]:
    """Start the boards with files and yield their URLs. All but the server's child outlive the server."""
    with contextlib.ExitStack() as stack:
        urls = {}
        for name in (*SHARED_BOARDS, TYPED, HELD):
            own = folder / name
            own.mkdir()
            (own / READINGS[1:]).write_text(FILE)
            if name == HELD:
                (own / SILENT[1:]).write_bytes(OLD)
            board = stack.enter_context(SimulatedBoard(own, place=("--listen", f"{HOST}:0")))
            urls[name] = f"socket://{HOST}:{board.path.rpartition(':')[2]}"
        yield urls | {CHILD: "sim:?telemetry=5"}


def one_run(folder: Path, number_of_boards: int, readers: int, drain: float, chance: random.Random) -> Run:
    """Run a server with its clients, send the signal, and check with the next server."""
    run = Run()
    with contextlib.ExitStack() as stack:
        urls = stack.enter_context(boards(folder))
        fleet = stack.enter_context(printing(Options(number_of_boards - len(urls), ROWS_PER_SECOND)))
        printers = {f"printing-{number}": url for number, url in enumerate(fleet.urls)}
        devices = "".join(f"[devices.{name}]\nurl = {json.dumps(url)}\n" for name, url in (printers | urls).items())
        (folder / "fleet.toml").write_text(devices)
        temporary = folder / "temporary"
        temporary.mkdir()
        common = ["serve", "--server", f"grpc://{HOST}:0", "--http", "0", "--fleet", str(folder / "fleet.toml")]
        common += ["--recordings", str(folder / "kept"), "--drain", f"{drain:g}"]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        server = Program("server", [*common, "--record", "*"], LISTENING, folder / "server.log", environment)
        location, http = server.start()
        stack.callback(server.kill)
        crowd = DrainCrowd(DrainedServer(location, http, tuple(printers), SHARED_BOARDS, TYPED, HELD), readers)
        try:
            crowd.start(BEGUN_SECONDS)
            time.sleep(chance.uniform(0, MOMENT_SECONDS))
            children = psutil.Process(server.pid).children(recursive=True)
            run.hold(bool(children), "the board that is a child process was not there")
            _end(server, drain, run)
        finally:
            server.kill()
            still = crowd.join(JOIN_SECONDS)
        run.hold(not still, f"clients that hang: {still}")
        run.hold(not crowd.untyped, f"errors without a code: {crowd.untyped}")
        run.ends = dict(sorted(crowd.ends.items()))
        run.rows_written, run.rows_read = crowd.promised.rows_written, crowd.promised.rows_read
        run.hold(not server.complaints(), f"the server's log: {server.complaints()}")
        left = [child.pid for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        run.hold(not left, f"processes that are left: {left}")
        run.hold(not any(temporary.iterdir()), f"temporary files: {sorted(each.name for each in temporary.iterdir())}")
        following = Program("the next server", common, LISTENING, folder / "next.log")
        location, _ = following.start()
        stack.callback(following.kill)
        with FastFlightClient(location) as client:
            look_at_recordings(client, crowd.promised, run)
            look_at_boards(client, folder, crowd.promised, run)
        run.hold(following.stop() == 0, "the next server did not end well")
    return run


def _end(server: Program, drain: float, run: Run) -> None:
    """Send the signal, and measure the shutdown."""
    cap = drain + END_SECONDS
    began = time.monotonic()
    run.code = server.stop(cap + LATE_SECONDS)
    run.seconds = round(time.monotonic() - began, 2)
    run.hold(run.seconds <= cap, f"it took {run.seconds} s, of {cap:g}")
    run.hold(run.code == 0, f"it ended with {run.code}")


def look_at_recordings(client: FastFlightClient, promised: Promised, run: Run) -> None:
    """Check that all acknowledged and received rows are there, and that all gaps are reported."""
    run.hold(bool(promised.recorded) and bool(promised.heard), "nothing was told to be kept, or heard")
    for name, following in promised.recorded.items():
        data, numbers, told = bytearray(), [], 0
        with client.recording(name) as rows:
            for batch in rows:
                numbers += batch.column("seq").to_pylist()
                data += b"".join(piece or b"" for piece in batch.column("data").to_pylist())
            told = sum(gap.last - gap.first + 1 for gap in rows.gaps)
        run.rows_recorded += len(numbers)
        reached = numbers[-1] + 1 if numbers else 0
        run.hold(reached >= following, f"{name}: kept up to {reached}, told {following}")
        run.hold(reached - len(numbers) == told, f"{name}: {reached - len(numbers)} numbers missing, {told} told")
        if name in promised.heard:
            printed = [int(number) for number in NUMBER.findall(data)]
            run.hold(not told and printed == list(range(len(printed))), f"{name}: rows missing, or not in order")
            run.hold(len(printed) > promised.heard[name], f"{name}: heard {promised.heard[name]}, kept {len(printed)}")


def look_at_boards(client: FastFlightClient, folder: Path, promised: Promised, run: Run) -> None:
    """Check that each board answers at once in the friendly REPL, and that its files are whole: old or new."""
    for name in (*SHARED_BOARDS, TYPED, HELD):
        try:
            with client.interact(name) as repl:
                repl.send("print(6 * 7)\r")
                repl.read_until(b"42\r\n>>> ")
            client.info(name)
            same = (folder / name / READINGS[1:]).read_text() == FILE
            same = same and client.read(name, READINGS).to_arrow().num_rows == READ_ROWS
            run.hold(same, f"{name}: {READINGS} is another one")
        except FastFlightError as error:
            run.amiss.append(f"{name} cannot be used: {error}")
    for name in SHARED_BOARDS:
        may_be = {promised.acknowledged.get(name, 0), promised.begun[name]}
        try:
            found = client.read(name, WRITTEN).to_arrow()
        except FileMissing:
            run.hold(0 in may_be, f"{name}: {WRITTEN} is gone")
            continue
        whole = any(found.select(["n", "generation"]).equals(written(each)) for each in may_be)
        run.hold(whole, f"{name}: {WRITTEN} is none of {may_be}")
    run.hold((folder / HELD / SILENT[1:]).read_bytes() == OLD, f"{HELD}: the old file is gone")
    known = {READINGS[1:], WRITTEN[1:], SILENT[1:]}
    for name in (*SHARED_BOARDS, TYPED, HELD):
        others = {each.name for each in (folder / name).iterdir()} - known
        run.hold(not others, f"{name}: files that nobody wrote: {others}")


def main(
    runs: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Servers to end.")] = 5,
    number_of_boards: Annotated[int, typer.Option("--boards", min=7, max=500, metavar="N")] = 20,
    readers: Annotated[int, typer.Option(min=1, max=20, metavar="N", help="Of each of nine kinds.")] = 4,
    drain: Annotated[float, typer.Option(min=0, max=60, metavar="SECONDS", help="For open streams.")] = 2.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the moments.")] = 1,
) -> None:
    """Shut down servers under load, and print what was found."""
    chance = random.Random(seed)
    amiss = 0
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="fastflight-drain-") as folder:
            run = one_run(Path(folder), number_of_boards, readers, drain, chance)
        amiss += len(run.amiss)
        typer.echo(
            f"{number + 1}: out after {run.seconds:.2f} s with {run.code} (may take {drain + END_SECONDS:g}); "
            f"{run.rows_written} rows of files and {run.rows_recorded} of recordings kept, {run.rows_read} read"
        )
        for end, times in run.ends.items():
            typer.echo(f"   {times:3} {end}")
        for what in run.amiss:
            typer.echo(f"   AMISS  {what}")
    raise typer.Exit(1 if amiss else 0)


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
