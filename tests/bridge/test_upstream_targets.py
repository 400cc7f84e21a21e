"""Real MicroPython behind a line: what a client sees of a soft reset, and that the state follows what firmware says."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fastflight.bridge.upstream import Upstream
from fastflight.transport import parse_url
from tests.bridge.line_watcher import LineWatcher, watched

RAW = b"raw REPL; CTRL-B to exit\r\n>"


async def conversation(board: LineWatcher, soft_reboot: bytes) -> None:
    await board.ask(b"\r\x03", b">>> ")
    await board.ask(b"\r\x01", RAW)
    assert await board.ask(b"print(1)\x04", b"\x04>") in (b"OK1\r\n\x04\x04>", b"OK1\n\x04\x04>")
    assert await board.ask(b"\x04", RAW) == b"OK\r\n" + soft_reboot + RAW
    await board.ask(b"print(2)\x04", b"OK")
    await board.read_until(b"\x04>")
    assert (await board.ask(b"\x02", b">>> ")).startswith(b"\r\nMicroPython")
    said = await board.ask(b"\x04", b">>> ")
    assert said.startswith(b"\r\n" + soft_reboot), said
    assert [state.phase for state in board.states] == ["open"]


def resets_as_a_board_does(url: str) -> None:
    async def scene() -> None:
        address = parse_url(url)
        with contextlib.ExitStack() as stack:
            stack.callback(address.dispose)
            async with watched(Upstream(address)) as board:
                await board.read_until(b">>> ")
                await conversation(board, b"MPY: soft reboot\r\n")

    asyncio.run(scene())


def test_the_simulated_board_is_followed_over_its_soft_resets() -> None:
    resets_as_a_board_does("sim:")


@pytest.mark.firmware
def test_the_webassembly_vm_resets_as_a_board_does(webassembly_without_raw_paste: str) -> None:
    resets_as_a_board_does(webassembly_without_raw_paste)


@pytest.mark.firmware
def test_the_unix_port_resets_as_a_board_does(unix_port: str) -> None:
    resets_as_a_board_does(unix_port)


@pytest.mark.firmware
def test_the_micro_bit_is_followed_over_its_soft_resets(microbit: str) -> None:
    async def scene() -> None:
        async with watched(Upstream(parse_url(microbit))) as board:
            await board.becomes("open")
            board.states.append(board.line.state)
            await board.ask(b"\r", b">>> ")
            await conversation(board, b"soft reboot\r\n")

    asyncio.run(scene())
