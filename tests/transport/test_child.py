"""A child process behind a port: its soft resets look like a board's, its deaths are told, nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fastflight.errors import TransportClosed
from fastflight.transport import terminal
from fastflight.transport.child import SOFT_REBOOT, ChildPort, describe_exit
from fastflight.transport.exec import ExecAddress
from tests.support.waiting import until
from tests.transport.port_reading import PATIENCE

CHILD = Path(__file__).parents[1] / "bridge" / "unix_child.py"
BANNER = b'MicroPython v1.27.0 on 2025-12-01; linux [Python] version\r\nType "help()" for more information.\r\n'
PROMPT = BANNER + b">>> "
RAW = b"raw REPL; CTRL-B to exit\r\n>"
RAW_RESET = b"OK\r\n" + SOFT_REBOOT + RAW


class Board:
    """The child's port, and what it has said and nobody has taken."""

    def __init__(self, port: ChildPort) -> None:
        self.port = port
        self._heard = b""

    async def read_until(self, mark: bytes) -> bytes:
        """What was said up to `mark`, which is taken as well."""
        while mark not in self._heard:
            self._heard += await self.port.aread(PATIENCE)
        said, mark, self._heard = self._heard.partition(mark)
        return said + mark

    async def ask(self, data: bytes, mark: bytes) -> bytes:
        await self.port.awrite(data, PATIENCE)
        return await self.read_until(mark)

    async def execute(self, code: str) -> bytes:
        return await self.ask(code.encode() + b"\x04", b"\x04>")

    async def pid(self) -> int:
        return int((await self.execute("import os; print(os.getpid())"))[2:-3])


@asynccontextmanager
async def child(*options: str, enter: bytes = b"\x01") -> AsyncIterator[Board]:
    """A child in the raw REPL, or where `enter` leads from its prompt."""
    command = shlex.join([sys.executable, "-I", "-S", str(CHILD), *options])
    port = await ExecAddress(f"exec:{command}", command, "/").aopen(PATIENCE)
    try:
        board = Board(port)
        assert await board.read_until(b">>> ") == PROMPT
        if enter:
            assert await board.ask(enter, RAW) == b"\r\n" + RAW
        yield board
    finally:
        await port.aclose()


def exists(process: int) -> bool:
    """Whether it runs: one that only waits to be reaped by the system does not."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").is_dir()


async def test_each_soft_reset_is_a_new_process_and_ends_the_old_one() -> None:
    async with child() as board:
        for _ in range(7):
            before = await board.pid()
            assert await board.ask(b"\x04", RAW) == RAW_RESET
            assert await board.pid() != before
            assert not exists(before)
        assert await board.ask(b"\x02", b">>> ") == b"\r\n" + PROMPT
        assert await board.ask(b"\x04", PROMPT) == b"\r\n" + SOFT_REBOOT + PROMPT


@pytest.mark.parametrize("leave", ["raise SystemExit", "import sys; sys.exit(3)"])
async def test_system_exit_in_the_raw_repl_is_a_soft_reset(leave: str) -> None:
    async with child() as board:
        assert await board.ask(leave.encode() + b"\x04", RAW) == b"OK\x04\x04" + SOFT_REBOOT + RAW


async def test_system_exit_from_raw_paste_is_a_soft_reset() -> None:
    async with child() as board:
        assert await board.ask(b"\x05A\x01", b"\x01\x20\x00\x01") == b"R\x01\x20\x00\x01"
        said = await board.ask(b"raise SystemExit" + b" " * 20 + b"\x04", RAW)
        assert said == b"\x01\x04\x04\x04" + SOFT_REBOOT + RAW


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(5)", "exit code 5"),
        ("import os; os._exit(0)", "exit code 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
async def test_a_death_while_code_runs_is_told(code: str, reason: str) -> None:
    async with child() as board:
        with pytest.raises(TransportClosed, match=reason):
            await board.ask(code.encode() + b"\x04", RAW)
        with pytest.raises(TransportClosed, match=reason):
            await board.port.awrite(b"x", PATIENCE)


async def test_a_death_in_mid_write_ends_the_write() -> None:
    async with child() as board:
        process = await board.pid()
        await board.ask(b"import os; os.read(0, 1); print('go'); import time; time.sleep(60)\x04", b"OK")
        # Far more than a terminal holds: the write waits, and the process reads nothing.
        writing = asyncio.ensure_future(board.port.awrite(b"x" * 4_000_000, PATIENCE))
        await board.read_until(b"go")
        os.kill(process, signal.SIGKILL)
        with pytest.raises(TransportClosed, match="SIGKILL"):
            await writing


@pytest.mark.parametrize("enter", [b"", b"\x01"], ids=["friendly", "raw"])
async def test_a_death_during_a_restart_is_told(tmp_path: Path, enter: bytes) -> None:
    marker = tmp_path / "dies"
    async with child("--marker", str(marker), enter=enter) as board:
        marker.touch()
        with pytest.raises(TransportClosed, match="exit code 7"):
            await board.ask(b"\x04", b"never")


async def test_what_the_old_process_left_running_reaches_nobody(tmp_path: Path) -> None:
    told = tmp_path / "told"
    # A session of its own: what ends the old process does not reach what it left.
    leave = "import os, time\nif os.fork() == 0:\n os.setsid()\n"
    leave += f" while not os.path.exists({str(told)!r}): time.sleep(0.01)\n"
    leave += " try:\n  for _ in range(1000): os.write(1, b'late ')\n finally: os._exit(0)\n"
    async with child() as board:
        await board.execute(leave)
        assert (await board.ask(b"\x04", SOFT_REBOOT)).startswith(b"OK\r\n")
        assert await board.read_until(RAW) == RAW
        told.touch()
        for number in range(10):
            assert await board.execute(f"print({number})") == b"OK%d\n\x04\x04>" % number


async def test_a_terminal_that_is_held_open_does_not_hide_the_end() -> None:
    hold = "import os\nif os.fork() == 0:\n os.setsid(); import time; time.sleep(3)\n os._exit(0)\n"
    async with child() as board:
        await board.execute(hold)
        assert await board.ask(b"\x04", RAW) == RAW_RESET


async def test_the_whole_group_ends_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "GRACE_SECONDS", 0.1)
    stubborn = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nother = os.fork()\n"
    stubborn += "if other: print(other, os.getpid())\ntime.sleep(60)\n"
    processes: list[int] = []
    async with child() as board:
        said = await board.ask(stubborn.encode() + b"\x04", b"\n")
        processes.extend(int(word) for word in said.removeprefix(b"OK").split())
    # One that was killed is gone when the system next lets it run, which on a busy machine is later.
    for process in processes:
        until(lambda process=process: not exists(process))


async def test_closed_in_the_middle_of_a_restart_nothing_is_left() -> None:
    # The leak check of every test sees processes and descriptors.
    for turns in (0, 1, 2, 5, 10, 50, 200, 1000):
        async with child() as board:
            await board.ask(b"\x04", b"OK\r\n")
            for _ in range(turns):
                await asyncio.sleep(0)


def test_says_how_a_process_ended() -> None:
    assert describe_exit(2) == "the process ended with exit code 2"
    assert describe_exit(-9) == "the process was ended by SIGKILL"
    assert describe_exit(-34) == "the process was ended by signal 34" or "SIGRTMIN" in describe_exit(-34)
