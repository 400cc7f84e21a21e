"""Commands beside a program that runs aiorepl, which goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.board_aiorepl import SOURCE

from .conftest import Board

PROGRAM = """\
import asyncio, aiorepl
number = 0
async def rows():
    global number
    while True:
        print("row", number)
        number += 1
        await asyncio.sleep_ms(20)
asyncio.create_task(rows())
asyncio.run(aiorepl.task())
"""
CONTENT = bytes(range(256)) * 20


@pytest.mark.needs("asyncio", "main.py")
def test_commands_beside_aiorepl(board: Board, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    for name, text in (("aiorepl.py", SOURCE), ("main.py", PROGRAM)):
        assert board.run("put", "-", f"board:/{name}", input=text).exit_code == 0
    assert board.run("soft-reset").exit_code == 0
    commands = {
        ("info",): "aiorepl",
        ("eval", "'a' * 3, 6 * 7"): "('aaa', 42)\n",
        ("exec", "print('said', 6 * 7)"): "said 42\n",
        ("df",): "/ ",
        ("put", f"{tmp_path}/a.bin", "board:/a.bin"): "5120 B",
        ("ls", "/"): "/a.bin",
        ("get", "board:/a.bin", f"{tmp_path}/back.bin"): "5120 B",
        ("rm", "board:/a.bin"): "",
    }
    first = int(board.run("eval", "number").stdout)
    for command, expected in commands.items():
        result = board.run(*command)
        assert (result.exit_code, expected in result.stdout) == (0, True), (command, result.output)
    clock = board.run("rtc")
    assert clock.exit_code == 0 or "no clock" in clock.stderr, clock.output
    assert (tmp_path / "back.bin").read_bytes() == CONTENT
    assert int(board.run("eval", "number").stdout) > first
