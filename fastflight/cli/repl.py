"""`fastflight repl`: a terminal of a board.

A `Terminal` holds the device's line. The main thread sends the keys, and a thread of its own
shows what the board sends: unchanged, because line editing on a board works with escape sequences.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.interruption import interruptible
from fastflight.cli.keyboard import Keyboard
from fastflight.cli.options import DeviceName
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import BusyError, FastFlightError, Stopped, TransportError

if TYPE_CHECKING:
    from fastflight.client.board import Board, Terminal

# Ctrl-]: the usual key for leaving a terminal program, and of no use on a board.
LEAVE = b"\x1d"
# Without a terminal the command ends when the board has been silent for this long after the end of the input.
QUIET_SECONDS = 2.0
# How often a lost device is tried again.
RETRY_SECONDS = 1.0
# How long the server may take to send the last keys to the board, after the user has left.
LEAVE_SECONDS = 5.0
# Errors of a session that a new one may not have.
PASSING = (TransportError, BusyError, Stopped)


@interruptible
@with_device_options
def repl(
    device: DeviceName = None,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Also append what the board prints to this file.")
    ] = None,
    hex: Annotated[
        bool, typer.Option("--hex", help="Show the bytes in hexadecimal: > sent to the board, < received from it.")
    ] = False,
    reconnect: Annotated[
        bool, typer.Option("--reconnect/--no-reconnect", help="Wait for a board or server that went away.")
    ] = True,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Type at a board's prompt. Ctrl-] leaves; all other keys go to the board, also Ctrl-C.

    A program that runs on the board goes on: Ctrl-C stops it. Enter shows the prompt.
    Until you leave, other commands cannot use the board.

    Input that is not a terminal is typed line by line: echo 'print(1)' | fastflight repl
    Then the command ends when the board has printed nothing for 2 seconds. A device that only prints (kind=lines)
    is sent the input unchanged, and the command ends 2 seconds later.
    """
    keyboard = Keyboard()
    with server.boards() as boards, log.open("ab", buffering=0) if log else nullcontext() as logged:
        name = device_name(boards, device)
        board = boards.board(name)
        known = next((each for each in boards.devices() if each.name == name), None)
        output = Output(logged, hex)
        terminal: Terminal | None = board.terminal()
        with keyboard:
            if keyboard.is_terminal:
                url = "" if known is None else known.url
                screen.complain(f"Connected to {name} ({url}). Ctrl-] leaves; all other keys go to the board.")
            while terminal is not None:
                try:
                    talk(terminal, keyboard, output, only_prints=known is not None and known.kind == "lines")
                    return
                except PASSING as error:
                    if not (reconnect and keyboard.is_terminal):
                        raise
                    screen.complain(f"{name}: {error.what}. Waiting for it; Ctrl-] leaves.")
                terminal = _connect_again(board, keyboard)
                if terminal is not None:
                    screen.complain(f"{name}: connected again.")


def talk(terminal: Terminal, keyboard: Keyboard, output: Output, *, only_prints: bool = False) -> None:
    """Send the input to the board, and show what it sends, until the user leaves or the input ends.

    `only_prints`: the device has no prompt at which text is typed, and is never silent.
    Closes `terminal`. If the session ends first, raises the reason.
    """
    output_thread = _OutputThread(terminal, output, keyboard)
    left = False
    try:
        output_thread.start()
        if keyboard.is_terminal:
            left = _send_keys(terminal, keyboard, output_thread)
        else:
            _send_text(terminal, keyboard, output_thread, only_prints=only_prints)
        terminal.done()
        output_thread.join(LEAVE_SECONDS)
        failure = output_thread.error
    except FastFlightError as error:  # sending failed; the reading side knows why
        output_thread.join(LEAVE_SECONDS)
        failure = output_thread.error or error
    finally:
        terminal.cancel()
        if output_thread.is_alive():  # not if a signal came before it was started
            output_thread.join()
        terminal.settle()
        output.end_line()
    if failure is not None and not (left and isinstance(failure, PASSING)):
        raise failure


def _send_keys(terminal: Terminal, keyboard: Keyboard, output_thread: _OutputThread) -> bool:
    """Send keys until the user leaves. False if the session has ended before."""
    while not output_thread.ended.is_set():
        keys = keyboard.read()
        if keys is None:
            continue
        before, leave, _ = keys.partition(LEAVE)
        if before:
            terminal.send(before)
        if leave or not keys:
            return True
    return False


def _send_text(terminal: Terminal, keyboard: Keyboard, output_thread: _OutputThread, *, only_prints: bool) -> None:
    """Send the text, each line with the key Enter, and wait until the board is silent.

    With `only_prints`, send it unchanged, and wait as long whatever the device prints.
    """
    while not output_thread.ended.is_set() and (lines := keyboard.read()) != b"":
        if lines:
            terminal.send(lines if only_prints else lines.replace(b"\r\n", b"\r").replace(b"\n", b"\r"))
    if only_prints:
        output_thread.ended.wait(QUIET_SECONDS)
        return
    output_thread.received = time.monotonic()
    while (left := output_thread.received + QUIET_SECONDS - time.monotonic()) > 0 and not output_thread.ended.wait(
        left
    ):
        pass


def _connect_again(board: Board, keyboard: Keyboard) -> Terminal | None:
    """Wait for the device and take its line again. None if the user leaves. Other keys are dropped."""
    while True:
        keys = keyboard.read(RETRY_SECONDS)
        if keys is not None and (LEAVE in keys or not keys):
            return None
        try:
            return board.terminal()
        except PASSING:
            continue


class _OutputThread(threading.Thread):
    """Shows what the board sends. `ended` is set when the session has ended, and `error` says why if it failed."""

    def __init__(self, terminal: Terminal, output: Output, keyboard: Keyboard) -> None:
        super().__init__(name="repl-output", daemon=True)
        self._terminal = terminal
        self._output = output
        self._keyboard = keyboard
        self.ended = threading.Event()
        self.error: Exception | None = None
        # When the board sent something last, by the monotonic clock.
        self.received = time.monotonic()

    def run(self) -> None:
        try:
            while (pieces := self._terminal.receive()) is not None:
                self._output.show(pieces)
                self.received = time.monotonic()
        except Exception as error:  # the edge of the thread: `talk` raises it
            self.error = error
        finally:
            self.ended.set()
            self._keyboard.wake()


class Output:
    """Shows what crosses the line on stdout, and appends what the board sent to `log`."""

    def __init__(self, log: FileIO | None, hex: bool) -> None:
        self._log = log
        self._hex = hex
        # Whether the last line on the terminal is complete.
        self._at_line_start = True

    def show(self, pieces: list[tuple[bool, bytes]]) -> None:
        """Show pieces of the session: whether the board sent them, and the bytes."""
        for received, data in pieces:
            if received:
                self._append(data)
            if self._hex:
                screen.lines("".join(f"{'<' if received else '>'} {line}\n" for line in hex_lines(data)))
            elif received:
                screen.write_unchanged(data)
                self._at_line_start = data.endswith((b"\n", b"\r")) if data else self._at_line_start

    def end_line(self) -> None:
        """Complete the last line of a terminal, so that the shell's prompt does not continue it."""
        if not self._at_line_start and sys.stdout.isatty():
            screen.lines("\n")
        self._at_line_start = True

    def _append(self, data: bytes) -> None:
        """Append to the log at once: the process may be killed."""
        if self._log is None:
            return
        try:
            while data:  # a full disk takes a part
                data = data[self._log.write(data) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._log.name) from error


def hex_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of a hex view."""
    return (screen.hex_line(data[start : start + screen.HEX_BYTES]) for start in range(0, len(data), screen.HEX_BYTES))
