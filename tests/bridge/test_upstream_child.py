"""A child process behind a line: its soft resets look like a board's, its deaths are told, nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from fastflight.bridge.upstream import QUICK_DEATHS, Backoff, Upstream
from fastflight.errors import TransportClosed
from fastflight.transport import exec as transport_exec
from fastflight.transport.child import SOFT_REBOOT, describe_exit
from fastflight.transport.exec import ExecAddress
from tests.bridge.line_watcher import LineWatcher, watched
from tests.support.waiting import until

CHILD = Path(__file__).with_name("unix_child.py")
BANNER = b'MicroPython v1.27.0 on 2025-12-01; linux [Python] version\r\nType "help()" for more information.\r\n'
PROMPT = BANNER + b">>> "
RAW = b"raw REPL; CTRL-B to exit\r\n>"
RAW_RESET = b"OK\r\n" + SOFT_REBOOT + RAW


def child(*options: str) -> Upstream:
    command = shlex.join([sys.executable, "-I", "-S", str(CHILD), *options])
    return Upstream(ExecAddress(f"exec:{command}", command, "/"), backoff=Backoff(0.01, 0.02))


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


async def enter_raw(board: LineWatcher) -> None:
    await board.read_until(PROMPT)
    assert await board.ask(b"\x01", b">") == b"\r\n" + RAW


async def execute(board: LineWatcher, code: str) -> bytes:
    return await board.ask(code.encode() + b"\x04", b"\x04>")


async def pid(board: LineWatcher) -> int:
    return int((await execute(board, "import os; print(os.getpid())"))[2:-3])


def exists(process: int) -> bool:
    """Whether it runs: one that only waits to be reaped by the system does not."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").is_dir()


def test_starts_at_the_friendly_prompt() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            assert await board.read_until(b">>> ") == PROMPT
            assert [state.phase for state in board.states] == ["open"]
            assert board.line.control is None

    play(scene())


def test_a_soft_reset_in_the_friendly_repl_looks_like_a_boards() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await board.read_until(PROMPT)
            await board.ask(b"x = 1\r", b"x = 1\r\n>>> ")
            assert await board.ask(b"\x04", PROMPT) == b"\r\n" + SOFT_REBOOT + PROMPT
            assert b"NameError" in await board.ask(b"x\r", b">>> "), "it is a new process"
            assert [state.phase for state in board.states] == ["open"]

    play(scene())


def test_a_soft_reset_in_the_raw_repl_looks_like_a_boards() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            before = await pid(board)
            assert await board.ask(b"\x04", RAW) == RAW_RESET
            assert await pid(board) != before
            assert not exists(before)
            assert await board.ask(b"\x02", b">>> ") == b"\r\n" + PROMPT
            assert [state.phase for state in board.states] == ["open"]

    play(scene())


def test_many_soft_resets_in_a_row_are_no_deaths() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            for _ in range(QUICK_DEATHS + 2):
                assert await board.ask(b"\x04", RAW) == RAW_RESET
            assert [state.phase for state in board.states] == ["open"]

    play(scene())


@pytest.mark.parametrize("leave", ["raise SystemExit", "import sys; sys.exit(3)"])
def test_system_exit_in_the_raw_repl_is_a_soft_reset(leave: str) -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            assert await board.ask(leave.encode() + b"\x04", RAW) == b"OK\x04\x04" + SOFT_REBOOT + RAW

    play(scene())


def test_system_exit_from_raw_paste_is_a_soft_reset() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            assert await board.ask(b"\x05A\x01", b"\x01\x20\x00\x01") == b"R\x01\x20\x00\x01"
            said = await board.ask(b"raise SystemExit" + b" " * 20 + b"\x04", RAW)
            assert said == b"\x01\x04\x04\x04" + SOFT_REBOOT + RAW

    play(scene())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(5)", "exit code 5"),
        ("import os; os._exit(0)", "exit code 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_death_while_code_runs_is_told_and_followed_by_a_fresh_start(code: str, reason: str) -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            await board.line.write(code.encode() + b"\x04")
            assert reason in (await board.becomes("lost")).reason
            assert (await board.read_until(PROMPT)).endswith(b"OK" + PROMPT), "no soft reboot is claimed"
            assert board.states[-1].phase == "open"

    play(scene())


def test_a_death_in_the_idle_raw_repl_is_told() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            os.kill(await pid(board), signal.SIGTERM)
            assert (await board.becomes("lost")).reason == "the process was ended by SIGTERM"
            await board.read_until(PROMPT)

    play(scene())


def test_a_death_in_mid_write_ends_the_write() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            process = await pid(board)
            await board.ask(b"import os; os.read(0, 1); print('go'); import time; time.sleep(60)\x04", b"OK")
            # Far more than a terminal holds: the write waits, and the process reads nothing.
            writing = asyncio.ensure_future(board.line.write(b"x" * 4_000_000))
            await board.read_until(b"go")
            os.kill(process, signal.SIGKILL)
            await asyncio.wait({writing})
            assert not isinstance(writing.exception(), TimeoutError)
            assert "SIGKILL" in (await board.becomes("lost")).reason
            await board.read_until(PROMPT)

    play(scene())


def test_a_write_to_a_dead_line_is_refused() -> None:
    async def scene() -> None:
        async with watched(child("--die-at-start", "3")) as board:
            await board.becomes("lost")
            with pytest.raises(TransportClosed, match="exit code 3"):
                await board.line.write(b"x")

    play(scene())


def test_a_child_that_keeps_dying_is_given_up_until_it_is_asked_for() -> None:
    async def scene() -> None:
        async with watched(child("--die-at-start", "3")) as board:
            for _ in range(2):
                reasons = [(await board.becomes("lost")).reason for _ in range(QUICK_DEATHS)]
                assert reasons[:-1] == ["the process ended with exit code 3"] * (QUICK_DEATHS - 1)
                assert reasons[-1] == f"given up after {QUICK_DEATHS} failures in a row: {reasons[0]}"
                board.line.retry()

    play(scene())


def test_a_command_that_is_not_there_is_given_up_too() -> None:
    async def scene() -> None:
        address = ExecAddress("exec:no-such-command", "no-such-command")
        try:
            async with watched(Upstream(address, backoff=Backoff(0.01, 0.02))) as board:
                reasons = [(await board.becomes("lost")).reason for _ in range(QUICK_DEATHS)]
                assert "cannot start the command" in reasons[-1]
        finally:
            address.dispose()

    play(scene())


@pytest.mark.parametrize("enter", [b"", b"\x01"], ids=["friendly", "raw"])
def test_a_death_during_a_restart_is_told(tmp_path: Path, enter: bytes) -> None:
    async def scene() -> None:
        marker = tmp_path / "dies"
        async with watched(child("--marker", str(marker))) as board:
            await board.read_until(PROMPT)
            if enter:
                await board.ask(enter, RAW)
            marker.touch()
            await board.line.write(b"\x04")
            assert "exit code 7" in (await board.becomes("lost")).reason
            marker.unlink()
            board.line.retry()
            assert (await board.read_until(PROMPT)).endswith(PROMPT)

    play(scene())


def test_what_the_old_process_left_running_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_exec, "GRACE_SECONDS", 0.1)
    # What it left begins to talk when it has ended itself: until then the conversation is the process's own.
    leave = "import os, time\nme = os.getpid()\nif os.fork() == 0:\n while os.getppid() == me: time.sleep(0.001)\n"
    leave += " while True: os.write(1, b'late ')\n"

    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            await execute(board, leave)
            assert (await board.ask(b"\x04", SOFT_REBOOT)).startswith(b"OK\r\n")
            assert await board.read_until(RAW) == RAW
            assert await execute(board, "print(1)") == b"OK1\n\x04\x04>"

    play(scene())


def test_a_terminal_that_is_held_open_does_not_hide_the_end() -> None:
    hold = "import os\nif os.fork() == 0:\n os.setsid(); import time; time.sleep(3)\n os._exit(0)\n"

    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            await execute(board, hold)
            assert await board.ask(b"\x04", RAW) == RAW_RESET

    play(scene())


def test_the_whole_group_ends_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_exec, "GRACE_SECONDS", 0.1)
    stubborn = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nother = os.fork()\n"
    stubborn += "if other: print(other, os.getpid())\ntime.sleep(60)\n"

    async def scene() -> list[int]:
        async with watched(child()) as board:
            await enter_raw(board)
            said = await board.ask(stubborn.encode() + b"\x04", b"\n")
            return [int(word) for word in said.removeprefix(b"OK").split()]

    # One that was killed is gone when the system next lets it run, which on a busy machine is later.
    for process in asyncio.run(scene()):
        until(lambda process=process: not exists(process))


def test_cancelled_in_the_middle_of_a_restart_nothing_is_left() -> None:
    async def scene(turns: int) -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            await board.ask(b"\x04", b"OK\r\n")
            for _ in range(turns):
                await asyncio.sleep(0)

    # The leak check of every test sees processes and descriptors.
    for turns in (0, 1, 2, 5, 10, 50, 200, 1000):
        asyncio.run(scene(turns))


def test_a_paused_line_says_nothing_and_loses_nothing() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            await enter_raw(board)
            board.line.pause()
            await board.line.write(b"print('x' * 100000)\x04")
            for _ in range(100):
                await asyncio.sleep(0)
            assert not board.heard
            board.line.resume()
            assert await board.read_until(b"\x04>") == b"OK" + b"x" * 100000 + b"\n\x04\x04>"

    play(scene())


def test_the_tap_sees_both_directions_and_the_restart() -> None:
    async def scene() -> None:
        async with watched(child()) as board:
            reader = board.line.tap.reader()
            await enter_raw(board)
            await board.ask(b"\x04", RAW)
            chunks = await reader.atake(0)
            sent = b"".join(chunk.data for chunk in chunks if chunk.direction == "tx")  # type: ignore[union-attr]
            seen = b"".join(chunk.data for chunk in chunks if chunk.direction == "rx")  # type: ignore[union-attr]
            assert sent == b"\x01\x04"
            assert seen == PROMPT + b"\r\n" + RAW + RAW_RESET

    play(scene())


def test_says_how_a_process_ended() -> None:
    assert describe_exit(2) == "the process ended with exit code 2"
    assert describe_exit(-9) == "the process was ended by SIGKILL"
    assert describe_exit(-34) == "the process was ended by signal 34" or "SIGRTMIN" in describe_exit(-34)
