"""A child on a terminal: what Ctrl-C does to it, that it outlives a soft reset, and that it gets no token."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.cli.server_options import TOKEN_VARIABLE
from fastflight.errors import TransportClosed, TransportError
from fastflight.transport import Port, parse_url
from fastflight.transport.child import SOFT_REBOOT
from fastflight.transport.exec import SECRETS, ExecAddress, child_environment
from tests.support.ports import open_port
from tests.transport.port_reading import PATIENCE, aread_until, read_until

CHILD = Path(__file__).parents[1] / "bridge" / "unix_child.py"
# The stand-in for MicroPython's unix port takes one line at a time.
ENDLESS = b"""exec("print('runs')\\nwhile True: pass")\r"""
ON_ITS_TERMINAL = b"import os; print(os.tcgetpgrp(os.open('/dev/tty', os.O_RDWR)) == os.getpid())\r"


def python(script: str) -> ExecAddress:
    command = shlex.join([sys.executable, "-I", "-S", "-u", "-c", script])
    return ExecAddress(f"exec:{command}", command, "/")


@pytest.fixture
def port() -> Iterator[Port]:
    command = shlex.join([sys.executable, "-I", "-S", str(CHILD)])
    opened = open_port(ExecAddress(f"exec:{command}", command, "/"), PATIENCE)
    try:
        read_until(opened, b">>> ")
        yield opened
    finally:
        opened.close()


def ask(port: Port, data: bytes, mark: bytes = b">>> ") -> bytes:
    port.write(data, PATIENCE)
    return read_until(port, mark)


async def aask(port: Port, data: bytes, mark: bytes = b">>> ") -> bytes:
    await port.awrite(data, PATIENCE)
    return await aread_until(port, mark)


def test_ctrl_c_interrupts_what_a_child_runs_and_is_a_byte_at_its_prompt(port: Port) -> None:
    assert ask(port, b"abc\x03") == b"abc\r\n>>> "
    ask(port, ENDLESS, b"runs\n")
    assert b"KeyboardInterrupt" in ask(port, b"\x03")
    assert ask(port, b"print(6 * 7)\r").endswith(b"42\n>>> ")


async def test_so_it_does_from_a_loop(port: Port) -> None:
    await aask(port, ENDLESS, b"runs\n")
    assert b"KeyboardInterrupt" in await aask(port, b"\x03")
    assert (await aask(port, b"print(6 * 7)\r")).endswith(b"42\n>>> ")


def test_ctrl_c_is_a_byte_to_a_child_that_leaves_its_terminal_alone() -> None:
    """An emulator would end by the signal, and the board in it with it."""
    echo = open_port(python("import os\nos.write(1, b'up')\nwhile True: os.write(1, os.read(0, 100))"), PATIENCE)
    try:
        read_until(echo, b"up")
        assert ask(echo, b"a\x03b", b"b") == b"a\x03b"
    finally:
        echo.close()


def test_a_child_has_its_terminal_as_its_controlling_one(port: Port) -> None:
    assert ask(port, ON_ITS_TERMINAL).endswith(b"True\n>>> ")


def test_a_child_outlives_soft_resets_for_a_thread_and_for_a_loop(port: Port) -> None:
    async def main() -> None:
        await aask(port, b"x = 1\r")
        assert SOFT_REBOOT in await aask(port, b"\x04")
        assert b"NameError" in await aask(port, b"x\r")

    for _ in range(2):
        ask(port, b"x = 1\r")
        assert SOFT_REBOOT in ask(port, b"\x04")
        assert b"NameError" in ask(port, b"x\r")
        asyncio.run(main())
    ask(port, b"\x01", b"CTRL-B to exit\r\n>")
    assert ask(port, b"\x04", b"CTRL-B to exit\r\n>") == b"OK\r\n" + SOFT_REBOOT + b"raw REPL; CTRL-B to exit\r\n>"


def test_a_death_says_how_it_came(port: Port) -> None:
    with pytest.raises(TransportClosed, match="the process ended with exit code 5"):
        port.write(b"import os; os._exit(5)\r", PATIENCE)  # Fails itself if the child ends before it returns.
        read_until(port, b"never")


@pytest.mark.parametrize(
    ("command", "reason"),
    [("no-such-command", "No such file"), ("./no-such", "No such file"), ("/etc/passwd", "denied")],
)
def test_a_command_that_cannot_run_is_refused(command: str, reason: str) -> None:
    with pytest.raises(TransportError, match=f"cannot start the command .*{reason}"):
        open_port(ExecAddress(f"exec:{command}", command, "/"), PATIENCE)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_child_of_a_device_does_not_inherit_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "ff_secret")
    monkeypatch.setenv("FASTFLIGHT_ELSE", "kept")
    program = tmp_path / "program.py"
    program.write_text("import os; print(sorted(n for n in os.environ if n.startswith('FASTFLIGHT_')), 'end', flush=1)")
    address = parse_url(f"exec:{sys.executable} {program}")
    port = open_port(address, PATIENCE)
    said = read_until(port, b"end")
    port.close()
    address.dispose()
    assert b"FASTFLIGHT_ELSE" in said
    assert TOKEN_VARIABLE.encode() + b"'" not in said


def test_what_is_left_out_is_what_commands_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "ff_secret")
    assert TOKEN_VARIABLE in SECRETS
    assert "ff_secret" not in child_environment().values()
