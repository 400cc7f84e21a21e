"""`repl` at a terminal and without one: the command as a child process, in front of a simulated board."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fastflight.app.compose import open_server
from fastflight.cli.repl import hex_lines
from fastflight.client import FastFlightClient
from fastflight.errors import BusyError
from fastflight.runtime.admission import DEFAULT_LIMITS
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.servers import FREE_PORT, config, ready_server

pytest.importorskip("pty", reason="the keys of a terminal need a pseudo-terminal")
from tests.support.terminal import TerminalCommand  # it needs one

# For Python to start on a busy computer, and for a lost board to be found again.
SECONDS = 60.0
PROMPT = b">>> "
LEAVE = b"\x1d"
CONNECTED = b"Ctrl-] leaves; all other keys go to the board.\r\n"
# A program that prints the next keys in hexadecimal, until the key Z. Ctrl-C is a key for it.
READ_KEYS = (
    b"import sys, micropython\r"
    b"def keys(): return iter(lambda: sys.stdin.buffer.read(1), b'Z')\r\r"
    b"micropython.kbd_intr(-1); print('go'); print(b''.join(keys()).hex(), 'end')\r"
)


def repl(server: str, *arguments: str) -> TerminalCommand:
    """A terminal with `repl` in it."""
    environment = {"FASTFLIGHT_SERVER": server, "TERM": "xterm"}
    return TerminalCommand([*FASTFLIGHT, "repl", *arguments], environment=environment)


@contextmanager
def connected(server: str, *arguments: str) -> Iterator[TerminalCommand]:
    """The same, once it is connected."""
    with repl(server, *arguments) as terminal:
        terminal.wait_for(CONNECTED)
        yield terminal


def leave(terminal: TerminalCommand) -> tuple[int, bytes]:
    terminal.type(LEAVE)
    return terminal.end()


def repl_server(location: str = FREE_PORT) -> AbstractContextManager[str]:
    return ready_server({"demo": "sim:?telemetry=0"}, location=location)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server with a board that is at its prompt."""
    with repl_server() as location:
        yield location


@pytest.fixture(params=["server", "no server"])
def at(request: pytest.FixtureRequest, server: str) -> tuple[str, ...]:
    """The server and the options for `repl` on a board of a server, or on one without a server."""
    return (server,) if request.param == "server" else ("", "--device", "sim:?telemetry=0")


def piped(server: str, text: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run `repl` with `text` as its input, without a terminal."""
    return run_command(
        [*FASTFLIGHT, "repl", *arguments],
        input=text,
        capture_output=True,
        env={**os.environ, "FASTFLIGHT_SERVER": server},
        timeout=SECONDS,
    )


def test_every_key_but_one_goes_to_the_board_and_its_output_to_the_terminal_and_the_log(
    at: tuple[str, ...], tmp_path: Path
) -> None:
    keys = bytes(byte for byte in range(256) if byte not in (*LEAVE, *b"Z")) + b"\x1b[A\x1b[3~\t" + "ä€".encode()
    log = tmp_path / "board.log"
    log.write_bytes(b"before\n")
    with connected(*at, "--log", str(log)) as terminal:
        terminal.type(READ_KEYS)
        terminal.wait_for(b"\ngo\r\n")
        terminal.type(keys + b"Z")
        shown = terminal.wait_for(b" end").removesuffix(b" end").strip()
        assert bytes.fromhex(shown.decode()) == keys
        terminal.wait_for(PROMPT)
        terminal.type(b"'ab' * 2\r")
        assert b"\n'abab'\r\n" in terminal.wait_for(b"'abab'\r\n>>> ")
        assert leave(terminal) == (0, b"\r\n")
    content = log.read_bytes()
    assert content.startswith(b"before\n")
    assert content.endswith(b"\r\n'abab'\r\n>>> ")
    if server := at[0]:
        with FastFlightClient(server) as client:
            assert [each.holder for each in client.devices()] == [None]


def test_the_program_goes_on_until_ctrl_c_is_typed(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import time\nwhile True:\n print('tick')\n time.sleep(0.05)\n")
    settings = config({"demo": f"sim:?files={tmp_path}"})
    with open_server(settings) as running, connected(running.location) as terminal:
        terminal.wait_for(b"tick\r\ntick\r\n")
        terminal.type(b"\x03")
        terminal.wait_for(b"KeyboardInterrupt")
        terminal.wait_for(PROMPT)
        assert leave(terminal)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_restores_the_terminal(server: str, number: signal.Signals) -> None:
    with connected(server) as terminal:
        terminal.type(b"6 * 7\r")
        terminal.wait_for(b"42\r\n>>> ")
        terminal.send_signal(number)
        code, shown = terminal.end()
    assert (code, shown) == (130, b"\r\ninterrupted\r\n")


def test_a_busy_device_is_refused_with_its_holder(server: str) -> None:
    with FastFlightClient(server) as client, client.interact("demo"):
        refused = piped(server, b"")
    assert refused.returncode == 1
    assert b"an interactive session" in refused.stderr


def test_a_log_that_cannot_be_written_ends_the_session_with_its_name(server: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    failed = piped(server, b"1\n", "--log", str(full))
    assert failed.returncode == 1
    assert b"error: /dev/full: No space left on device" in failed.stderr


def test_bytes_are_shown_in_hexadecimal(server: str) -> None:
    with connected(server, "--hex") as terminal:
        terminal.type(b"1\r")
        terminal.wait_for(b"> 31 0d")
        terminal.wait_for(b"< ")
        leave(terminal)


def test_lines_of_the_hex_view() -> None:
    assert list(hex_lines(b"")) == []
    assert list(hex_lines(b"0123456789abcdef\r\xff")) == [
        "30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "0d ff                                            ..",
    ]


@pytest.mark.parametrize("name", [b"demo", b"board"], ids=["server", "no server"])
def test_a_board_that_comes_back_is_connected_again(name: bytes) -> None:
    """With a server of its own, whose line is opened again."""
    options = () if name == b"demo" else ("--device", "sim:?telemetry=0")
    with repl_server() as location, connected(location, *options) as terminal:
        terminal.type(b"import machine\rmachine.bootloader()\r")
        terminal.wait_for(name + b": the device closed the line. Waiting for it; Ctrl-] leaves.\r\n")
        terminal.wait_for(name + b": connected again.\r\n")
        terminal.type(b"6 * 7\r")
        terminal.wait_for(b"\n42\r\n>>> ")
        assert leave(terminal)[0] == 0


def test_a_board_that_goes_away_is_left_without_waiting_for_it() -> None:
    with repl_server() as location, connected(location) as terminal:
        terminal.type(b"import machine\r")
        terminal.wait_for(PROMPT)
        terminal.type(b"machine.bootloader()\r" + LEAVE)
        code, shown = terminal.end()
    assert (code, b"Waiting" in shown) == (0, False)


def test_a_server_that_comes_back_is_connected_again() -> None:
    with ExitStack() as running:
        location = running.enter_context(repl_server())
        with connected(location) as terminal:
            running.close()
            terminal.wait_for(b"Waiting for it; Ctrl-] leaves.\r\n")
            with repl_server(location):
                terminal.wait_for(b"demo: connected again.\r\n")
                terminal.type(b"6 * 7\r")
                terminal.wait_for(b"\n42\r\n>>> ")
                assert leave(terminal)[0] == 0


def _until_not_busy(call: Callable[[], object]) -> None:
    ends = time.monotonic() + SECONDS
    while True:
        try:
            call()
            return
        except BusyError:
            assert time.monotonic() < ends


def test_a_device_that_was_lent_to_others_is_connected_again() -> None:
    limits = replace(DEFAULT_LIMITS, idle_seconds=0.1)
    settings = config({"demo": "sim:?telemetry=0"}, limits=limits)
    with open_server(settings) as running, connected(running.location) as terminal:
        with FastFlightClient(running.location) as client:
            _until_not_busy(lambda: client.ls("demo"))
        terminal.wait_for(b"somebody else asked for the device. Waiting for it; Ctrl-] leaves.\r\n")
        terminal.wait_for(b"demo: connected again.\r\n")
        assert leave(terminal)[0] == 0


def test_waiting_for_a_server_is_left_with_the_same_key() -> None:
    with ExitStack() as running, connected(running.enter_context(repl_server())) as terminal:
        running.close()
        terminal.wait_for(b"Waiting for it; Ctrl-] leaves.\r\n")
        terminal.type(b"\x03print(1)\r")
        assert leave(terminal) == (0, b"")


def test_a_lost_board_is_an_error_without_reconnect() -> None:
    with repl_server() as location, connected(location, "--no-reconnect") as terminal:
        terminal.type(b"import machine\rmachine.bootloader()\r")
        code, shown = terminal.end()
    assert code == 3
    assert b"error: the device closed the line" in shown


def test_text_from_a_pipe_is_typed_line_by_line(at: tuple[str, ...]) -> None:
    """And a program may print after the end of the input."""
    done = piped(at[0], b"x = 6\r\nprint(x * 7)\nimport time; time.sleep(0.5); print('a' + 'b')\n", *at[1:])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"print(x * 7)\r\n42\r\n>>> " in done.stdout
    assert b"\nab\r\n>>> " in done.stdout


def test_a_board_that_is_lost_without_a_terminal_is_an_error() -> None:
    with repl_server() as location:
        lost = piped(location, b"import machine; machine.bootloader()\n")
    assert lost.returncode == 3
    assert b"error: the device closed the line" in lost.stderr
