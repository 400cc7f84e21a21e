"""Ctrl-C in the middle of a copy over a slow line, and the same command again: the command line as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastflight.client import FastFlightClient
from fastflight.concurrency import Shards
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.service.requests import DeviceExec
from fastflight.service.source import Reading
from tests.support.commands import FASTFLIGHT, Command
from tests.support.function_source import FunctionSource
from tests.support.servers import ready_server

pytest.importorskip("pty", reason="only a pseudo-terminal shows how far a copy is")
import fcntl  # where there is the one, there are the others
import termios

from tests.support.terminal import TerminalCommand

# Four seconds of a 115200 baud line, of which nothing can be saved by compression.
CONTENT = random.Random(3).randbytes(40_000)
TOTAL = "40.0 kB"
# For Python to start on a busy computer.
SECONDS = 60.0
# What the bar on the terminal shows once the first bytes are stored.
MOVED = re.compile(rb"(?<![\d.])[1-9][\d.]*/40\.0 kB")
# The same of a copy that is converted, whose size is not known.
SOME = re.compile(rb"(?<![\d.])[1-9][\d.]*/\? ")
# Ten seconds of the faster line. The first progress of a copy that is converted comes after 64 KiB.
ROWS = b"a,b\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(60_000))
ESCAPES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


@dataclass
class Slow:
    """A server in front of two simulated boards on paced lines, whose files are in `folder`."""

    location: str
    folder: Path

    def command(self, *arguments: str, cwd: Path) -> TerminalCommand:
        environment = {"FASTFLIGHT_SERVER": self.location, "TERM": "xterm", "COLUMNS": "100"}
        return TerminalCommand([*FASTFLIGHT, *arguments], cwd=cwd, environment=environment)

    def run(
        self, *arguments: str, cwd: Path, until: re.Pattern[bytes] | None = None, number: signal.Signals = signal.SIGINT
    ) -> tuple[int, list[str]]:
        """Run a command, and interrupt it at a text. Return its exit code, and the lines that are left to see."""
        with self.command(*arguments, cwd=cwd) as terminal:
            if until is not None:
                terminal.wait_for(until)
                terminal.send_signal(number)
            code, _ = terminal.end()
        lines = ESCAPES.sub("", terminal.shown.decode().replace("\r\n", "\n")).split("\n")
        visible = [line.rpartition("\r")[2].strip() for line in lines]  # without what was drawn over
        is_bar = re.compile(r"━|/40\.0 kB|/\?|bytes")
        return code, [line for line in visible if line and not is_bar.search(line)]


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slow]:
    folder = tmp_path_factory.mktemp("board")
    speeds = {"demo": 115_200, "fast": 921_600}
    urls = {name: f"sim:?files={folder}&telemetry=0&baud={baud}" for name, baud in speeds.items()}
    with ready_server(urls) as location:
        yield Slow(location, folder)


@pytest.fixture
def slow(slow_server: Slow) -> Slow:
    """The same server, and boards without files."""
    for path in slow_server.folder.iterdir():
        path.unlink()
    return slow_server


def test_put_goes_on_where_it_was_interrupted(slow: Slow, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(CONTENT)
    command = ("put", "big.bin", "demo:/big.bin")
    code, (interrupted,) = slow.run(*command, cwd=tmp_path, until=MOVED)
    kept = re.fullmatch(
        rf"interrupted: ([\d.]+ kB) of {TOTAL} are kept on the board; run the same command again to continue",
        interrupted,
    )
    assert code == 130 and kept, interrupted
    assert not (slow.folder / "big.bin").exists()

    code, (resuming, done) = slow.run(*command, cwd=tmp_path)
    assert code == 0
    at = re.fullmatch(rf"demo:/big\.bin: resuming at ([\d.]+ kB) of {TOTAL}", resuming)
    assert at, resuming
    # What was acknowledged is there, and what the board had on the line when it was told to stop may be.
    assert float(at[1].split()[0]) >= float(kept[1].split()[0]) > 0
    assert done == f"demo:/big.bin: {TOTAL} written, {at[1]} of it earlier"
    assert (slow.folder / "big.bin").read_bytes() == CONTENT
    assert [path.name for path in slow.folder.iterdir() if path.name.startswith(".")] == []


def test_get_goes_on_where_it_was_interrupted(slow: Slow, tmp_path: Path) -> None:
    (slow.folder / "big.bin").write_bytes(CONTENT)
    (tmp_path / "here").mkdir()
    command = ("get", "demo:/big.bin", "-o", "here.bin")
    code, (interrupted,) = slow.run(*command, cwd=tmp_path / "here", until=MOVED)
    kept = re.fullmatch(
        rf"interrupted: ([\d.]+ kB) of {TOTAL} are kept in here\.bin\.part; run the same command again to continue",
        interrupted,
    )
    assert code == 130 and kept, interrupted
    (part,) = (tmp_path / "here").iterdir()
    assert part.name == "here.bin.part" and CONTENT.startswith(part.read_bytes())

    code, said = slow.run(*command, cwd=tmp_path / "here")
    assert code == 0
    assert said == [
        f"demo:/big.bin: resuming at {kept[1]} of {TOTAL}",
        f"here.bin: {TOTAL}, {kept[1]} of it earlier",
    ]
    assert {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()} == {"here.bin": CONTENT}


@pytest.mark.parametrize("verb", ["get", "put"])
def test_a_copy_that_converts_leaves_the_old_file_and_no_part_of_the_new_one(
    slow: Slow, tmp_path: Path, verb: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    source, target = (slow.folder, here) if verb == "get" else (here, slow.folder)
    (source / "rows.csv").write_bytes(ROWS)
    (target / "rows.jsonl").write_bytes(b"old")
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    command = {
        "get": ("fast:/rows.csv", "-o", "rows.jsonl"),
        "put": ("rows.csv", "fast:/rows.jsonl", "--no-deflate"),
    }[verb]
    number = signal.SIGINT if verb == "get" else signal.SIGTERM
    assert slow.run(verb, *command, cwd=here, until=SOME, number=number) == (130, ["interrupted"])
    with FastFlightClient(slow.location) as client:
        client.ls("fast")  # waits for the end of the write
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_waits_for_its_device_ends_at_once_and_is_not_begun(number: signal.Signals) -> None:
    """Flight has no way to take such a call back but to leave: the server would wait on, and run the code after all."""
    asked, given_up = threading.Event(), threading.Event()

    async def waiting(request: DeviceExec) -> Reading:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError("nobody ends this")

    catalog = Catalog()
    catalog.add(FunctionSource(DeviceExec, aread=waiting))
    with contextlib.closing(FlightServer(catalog, shards=Shards().start(), location="grpc://127.0.0.1:0")) as server:
        child = Command(
            [*FASTFLIGHT, "exec", "demo", "1 + 1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "FASTFLIGHT_SERVER": f"grpc://127.0.0.1:{server.port}"},
        )
        try:
            assert asked.wait(SECONDS)
            child.send_signal(number)
            out, said = child.communicate(timeout=SECONDS)
            assert (child.returncode, out, said) == (130, b"", b"interrupted\n")
            assert given_up.wait(SECONDS)
        finally:
            child.kill()
            child.communicate()


def test_code_that_does_not_end_is_not_waited_for_after_ctrl_c() -> None:
    theirs, ours = os.pipe()
    command = [*FASTFLIGHT, "exec", "demo", "-"]
    child = Command(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        os.write(ours, b"1 + 1\n")
        # Until it has taken that, and waits for more.
        while fcntl.ioctl(theirs, termios.FIONREAD, bytes(4)) != bytes(4):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=SECONDS) == (b"", b"interrupted\n")
        assert child.returncode == 130
    finally:
        child.kill()
        child.communicate()
        os.close(ours)
        os.close(theirs)


CLEANING = """
import time
from fastflight.cli.interruption import interruptible

@interruptible
def command() -> None:
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleaning up", flush=True)
        time.sleep(600)

command()
"""


def test_a_second_ctrl_c_ends_a_command_that_cleans_up() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CLEANING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        for line in ("ready\n", "cleaning up\n"):
            assert child.stdout.readline() == line
            child.send_signal(signal.SIGINT)
        assert (child.wait(SECONDS), child.stderr.read()) == (130, "interrupted\n")
