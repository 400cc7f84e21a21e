"""`fastflight mount`: a board reads and writes a folder of this computer as if it were on the board, at `/remote`.

The board's file functions send questions in its output (`protocol.mount`). A `MountedTerminal` answers them from the
folder (`mounted_folder`), and passes on everything else.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import opened
from fastflight.cli.exit_codes import REFUSED
from fastflight.cli.interruption import LOOK_SECONDS, interruptible
from fastflight.cli.keyboard import Keyboard
from fastflight.cli.mounted_folder import Folder
from fastflight.cli.options import DeviceName, Interrupt
from fastflight.cli.repl import Output, talk
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import BusyError, DeviceError, FastFlightError
from fastflight.protocol.mount import MountAnswers
from fastflight.protocol.mounted_board import (
    CTRL_C,
    RUN_LINE,
    START_LINE,
    STOP_ECHO,
    STOP_LINE,
    install_code,
    sizes_for,
)

if TYPE_CHECKING:
    from fastflight.client.board import Board, Terminal

# What a board needs for it, as `fastflight info` names it.
NEEDED = ("stdin.buffer", "stdout.buffer", "binascii.crc32", "os.ilistdir")
INFLATES = "deflate.DeflateIO"
# Where the folder is, and in it the board's working directory.
POINT = "/remote"
# How long the program may take to end after Ctrl-C. Then more of them follow, for a program that catches some.
CLEAN_UP_SECONDS = 3.0
CTRL_C_TIMES, CTRL_C_SECONDS = 60, 0.01
# How long a board may take to unmount the folder after that.
UNMOUNT_SECONDS = 5.0


@interruptible
@with_device_options
def mount(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A local folder.")],
    device: DeviceName = None,
    code: Annotated[
        str | None, typer.Option("--exec", "-c", metavar="CODE", help="Run this, then end: --exec 'import app'.")
    ] = None,
    unsafe_links: Annotated[
        bool, typer.Option("--unsafe-links", "-l", help="Follow links that lead out of the folder.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="The board cannot change the folder.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Let a board use a local folder as /remote, and type at its prompt. Nothing is copied to the board.

    First the board's interpreter restarts, without main.py, so that `import app` takes app.py of the folder as it is.
    The board is in /remote, and can change files there, but not leave it.
    Ctrl-] leaves; all other keys go to the board. At the end the folder is unmounted, which stops the program.
    After a soft reset (Ctrl-D), when the prompt is back, the folder is mounted again.
    A file that the board writes replaces the old one when the board closes it.
    Keys that you press while the board uses a file may be lost.
    """
    if not folder.is_dir():
        raise typer.BadParameter(f"{str(folder)!r} is not a folder")
    files = Folder(folder, read_only=read_only, unsafe_links=unsafe_links)
    with server.boards() as boards, opened(boards, device, interrupt=interrupt) as board, closing(files):
        name = board.name
        if code is None:
            with Keyboard() as keyboard:
                answers = _type(board, files, keyboard)
        else:
            answers = _run(_mounted(board, files, code, restart=True))
    if answers.was_reset:
        screen.complain(f"{name}: the board was reset, which has unmounted {POINT}")
    elif answers.ended is None:
        screen.complain(f"{name}: {POINT} may still be mounted: reset the board")
    if code is not None and not answers.ended:
        raise typer.Exit(REFUSED)


class MountedTerminal:
    """A terminal that answers the board's questions, and passes on everything else. `done` unmounts the folder."""

    def __init__(self, terminal: Terminal, answers: MountAnswers) -> None:
        self.answers = answers
        self._terminal = terminal
        self._stopping, self._unmounted = threading.Event(), threading.Event()
        # The end of what was received, if it may be the beginning of the echo of `STOP_LINE`.
        self._held = b""
        self.send = terminal.send
        self.cancel = terminal.cancel
        self.settle = terminal.settle

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """As `Terminal.receive`. The result is empty if the board has only asked questions.

        None also if the board's prompt is back after a soft reset: the folder is no longer mounted.
        """
        pieces = None if self.answers.was_reset else self._terminal.receive()
        if pieces is None:
            return None
        passed_on = []
        for received, data in pieces:
            for output, reply in self.answers.feed(data) if received else ((data, b""),):
                if reply:
                    self._terminal.send(reply)
                if received and self._stopping.is_set():
                    output = self._without_echo(output)
                if output:
                    passed_on.append((received, output))
        if self.answers.ended is not None or self.answers.was_reset:
            self._unmounted.set()
        return passed_on

    def stop(self) -> None:
        """Stop the board's program, and have the board unmount the folder. Another thread must receive meanwhile."""
        self._stopping.set()
        self._terminal.send(CTRL_C + STOP_LINE)
        if self._unmounted.wait(CLEAN_UP_SECONDS):
            return
        for _ in range(CTRL_C_TIMES):
            self._terminal.send(CTRL_C)
            if self._unmounted.wait(CTRL_C_SECONDS):
                return
        self._terminal.send(STOP_LINE)
        self._unmounted.wait(UNMOUNT_SECONDS)

    def _without_echo(self, output: bytes) -> bytes:
        """Return the board's output without what its prompt shows of the line that is typed to unmount the folder."""
        output = (self._held + output).replace(STOP_ECHO, b"")
        end = next((n for n in range(len(STOP_ECHO) - 1, 0, -1) if output.endswith(STOP_ECHO[:n])), 0)
        self._held = output[len(output) - end :]
        return output[: len(output) - end]

    def done(self) -> None:
        """Unmount the folder, and end the session. Another thread must receive meanwhile."""
        with suppress(FastFlightError):  # the session has ended already
            if not self.answers.was_reset:
                self.stop()
        self._terminal.done()


def _type(board: Board, files: Folder, keyboard: Keyboard) -> MountAnswers:
    """Mount the folder, and send keys until the user leaves. Mount it again after each soft reset."""
    again = ""
    while True:
        terminal = _mounted(board, files, "", restart=not again)
        if again or keyboard.is_terminal:
            screen.complain(f"{files.top} is {POINT} of {board.name}{again}. Ctrl-] leaves.")
        terminal.send(START_LINE)
        talk(terminal, keyboard, Output(None, False))
        if not terminal.answers.was_reset:
            return terminal.answers
        files.close()
        again = " again"


def _mounted(board: Board, files: Folder, code: str, *, restart: bool) -> MountedTerminal:
    """Give the board what it needs to mount the folder, and return a terminal that answers its questions.

    With `restart` in an interpreter that has imported nothing yet.
    """
    info: dict[str, Any] = board.info()
    features = info["features"]
    if info["capabilities"] != "none":
        raise BusyError(
            "a program runs on the board, and the folder is mounted at the board's own prompt",
            holder="the board's own program",
            hint="Stop the program: --interrupt",
            where=board.name,
        )
    missing = [feature for feature in NEEDED if feature not in features]
    if missing and info.get("kind") != "lines":  # that one refuses the next request, and says why
        hint = "Copy the folder: fastflight sync"
        raise DeviceError(
            f"this board cannot mount a folder, it has no {', '.join(missing)}", where=board.name, hint=hint
        )
    if restart:
        board.reset(main=False)
    sizes = sizes_for(info["free_memory"] or 0, info["platform"])
    for row in board.exec(install_code(sizes, code)):
        screen.line(row["text"])
    return MountedTerminal(board.terminal(), MountAnswers(files, sizes=sizes, deflate=INFLATES in features))


def _run(terminal: MountedTerminal) -> MountAnswers:
    """Have the board run the code, and show what that prints. Ctrl-C stops it."""
    failures: list[Exception] = []

    def show() -> None:
        try:
            _show_until_unmounted(terminal)
        except Exception as error:  # the edge of the thread
            failures.append(error)

    # In a thread: Ctrl-C must not end a read whose result would then be lost.
    showing = threading.Thread(target=show, name="mount-output", daemon=True)
    try:
        terminal.send(RUN_LINE)
        showing.start()
        try:
            while showing.is_alive():
                showing.join(LOOK_SECONDS)
        except KeyboardInterrupt:
            terminal.stop()
            raise
    finally:
        terminal.cancel()
        if showing.ident is not None:
            showing.join()
        terminal.settle()
    if failures:
        raise failures[0]
    return terminal.answers


def _show_until_unmounted(terminal: MountedTerminal) -> None:
    while terminal.answers.ended is None and (pieces := terminal.receive()) is not None:
        for received, data in pieces:
            if received:
                screen.write_unchanged(data)
