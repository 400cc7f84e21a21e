"""`fastflight mount`: a board reads a folder of this computer as if it were on the board, at `/remote`.

The board's file functions send questions in its output (`protocol.mount`). A `MountedTerminal` answers them from the
folder, and passes on everything else. Links that lead out of the folder, and what is no file or folder, do not exist
for the board. Nothing can be written.
"""

from __future__ import annotations

import os
import posixpath
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.exit_codes import REFUSED
from fastflight.cli.interruption import interruptible
from fastflight.cli.keyboard import Keyboard
from fastflight.cli.options import DeviceName, Interrupt
from fastflight.cli.repl import Output, Terminal, talk
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import DeviceError, FastFlightError
from fastflight.protocol.mount import MountAnswers, State
from fastflight.protocol.mounted_board import CTRL_C, RUN_LINE, START_LINE, STOP_LINE, install_code, sizes_for

if TYPE_CHECKING:
    from fastflight.cli.interruptible_client import InterruptibleClient

# What a board needs for it, as `fastflight info` names it.
NEEDED = ("stdin.buffer", "stdout.buffer", "binascii.crc32", "os.ilistdir")
INFLATES = "deflate.DeflateIO"
# Where the folder is, and in it the board's working directory.
POINT = "/remote"
# How long a board may take to unmount the folder.
UNMOUNT_SECONDS = 5.0


@interruptible
@with_device_options
def mount(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A local folder.")],
    device: DeviceName = None,
    code: Annotated[
        str | None, typer.Option("--exec", "-c", metavar="CODE", help="Run this, then end: --exec 'import app'.")
    ] = None,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Let a board read a local folder as /remote, and type at its prompt. Nothing is copied to the board.

    The board is in /remote: `import app` takes app.py of the folder. It cannot write there, or leave the folder.
    Ctrl-] leaves; all other keys go to the board. At the end the folder is unmounted, which stops the program.
    A soft reset (Ctrl-D) unmounts it as well. Keys that you press while the board reads a file may be lost.
    """
    if not folder.is_dir():
        raise typer.BadParameter(f"{str(folder)!r} is not a folder")
    with server.client() as client:
        name = device_name(client, device)
        answers = _prepare(client, name, Folder(folder), code, interrupt)
        terminal = MountedTerminal(client.terminal(name), answers)
        if code is None:
            with Keyboard() as keyboard:
                if keyboard.is_terminal:
                    screen.complain(f"{folder} is {POINT} of {name}. Ctrl-] leaves.")
                terminal.send(START_LINE)
                talk(terminal, keyboard, Output(None, False))
        else:
            _run(terminal)
    if answers.ended is None:
        screen.complain(f"{name}: {POINT} may still be mounted: reset the board")
    if code is not None and not answers.ended:
        raise typer.Exit(REFUSED)


class Folder:
    """What a board sees of a local folder. Paths begin with a slash, which is the folder itself. Raises `OSError`."""

    def __init__(self, top: Path) -> None:
        self._top = os.path.realpath(top)

    def read(self, path: str, offset: int, count: int) -> tuple[bytes, int]:
        """Return at most `count` bytes of a file from `offset` on, and the size of the file."""
        real = self._real(path)
        if os.path.isdir(real):
            raise IsADirectoryError(real)
        # The path has no links any more: one that was put there meanwhile is not followed.
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            file.seek(offset)
            return file.read(count), os.fstat(descriptor).st_size

    def state(self, path: str) -> State:
        """Return what a path is."""
        found = os.stat(self._real(path))
        return State(stat.S_ISDIR(found.st_mode), found.st_size, int(found.st_mtime))

    def entries(self, path: str) -> list[tuple[str, State]]:
        """Return the files and folders in a folder, by name."""
        found = []
        for name in sorted(os.listdir(self._real(path))):
            try:
                found.append((name, self.state(posixpath.join(path, name))))
            except OSError:
                continue
        return found

    def _real(self, path: str) -> str:
        inside = posixpath.normpath("/" + path).lstrip("/")
        real = os.path.realpath(os.path.join(self._top, inside))
        if real != self._top and not real.startswith(self._top.rstrip(os.sep) + os.sep):
            raise FileNotFoundError(path)
        if stat.S_IFMT(os.stat(real).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise FileNotFoundError(path)
        return real


class MountedTerminal:
    """A terminal that answers the board's questions, and passes on everything else. `done` unmounts the folder."""

    def __init__(self, terminal: Terminal, answers: MountAnswers) -> None:
        self.answers = answers
        self._terminal = terminal
        self._unmounted = threading.Event()
        self.send = terminal.send
        self.cancel = terminal.cancel
        self.settle = terminal.settle

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """As `BoardTerminal.receive`. The result is empty if the board has only asked questions."""
        pieces = self._terminal.receive()
        if pieces is None:
            return None
        shown = []
        for received, data in pieces:
            for output, reply in self.answers.feed(data) if received else ((data, b""),):
                if reply:
                    self._terminal.send(reply)
                if output:
                    shown.append((received, output))
        if self.answers.ended is not None:
            self._unmounted.set()
        return shown

    def stop(self) -> None:
        """Stop the board's program, and have the board unmount the folder. Another thread may receive meanwhile."""
        self._terminal.send(CTRL_C)
        self._terminal.send(STOP_LINE)

    def done(self) -> None:
        """Unmount the folder, and end the session. Another thread must receive meanwhile."""
        with suppress(FastFlightError):  # the session has ended already
            self.stop()
            self._unmounted.wait(UNMOUNT_SECONDS)
        self._terminal.done()


def _prepare(client: InterruptibleClient, name: str, folder: Folder, code: str | None, interrupt: bool) -> MountAnswers:
    """Give the board what it needs to mount the folder, and return what answers its questions."""
    info: dict[str, Any] = client.info(name, interrupt=interrupt)
    features = info["features"]
    if missing := [feature for feature in NEEDED if feature not in features]:
        hint = "Copy the folder: fastflight sync"
        raise DeviceError(f"this board cannot mount a folder, it has no {', '.join(missing)}", where=name, hint=hint)
    sizes = sizes_for(info["free_memory"] or 0, info["platform"])
    for row in client.exec_rows(name, install_code(sizes, code or ""), interrupt=interrupt):
        screen.line(row["text"])
    return MountAnswers(folder.read, folder.state, folder.entries, sizes=sizes, deflate=INFLATES in features)


def _run(terminal: MountedTerminal) -> None:
    """Have the board run the code, and show what that prints. Ctrl-C stops it."""
    try:
        terminal.send(RUN_LINE)
        try:
            _show_until_unmounted(terminal)
        except KeyboardInterrupt:
            terminal.stop()
            _show_until_unmounted(terminal)
            raise
    finally:
        terminal.cancel()
        terminal.settle()


def _show_until_unmounted(terminal: MountedTerminal) -> None:
    while terminal.answers.ended is None and (pieces := terminal.receive()) is not None:
        for received, data in pieces:
            if received:
                screen.write_unchanged(data)
