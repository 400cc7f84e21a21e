"""`fastflight edit`: edit a file of a device in an editor of this computer.

The file is copied here, edited, and written back if it was changed. Changes that are not on the board stay here: if the
file on the board was changed meanwhile, or the write fails, the path of the edited copy is printed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastflight.cli import screen
from fastflight.cli.arguments import target
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DevicePath, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.board import Board
from fastflight.client.local_names import local_name
from fastflight.errors import DataError, FileMissing, RequestError

# The editor if the environment names none.
EDITOR = "notepad" if sys.platform == "win32" else "vi"


@interruptible
@with_device_options
def edit(file: DevicePath, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Edit a file of a device in your editor. A file that does not exist is created.

    The environment names the editor: VISUAL or EDITOR, as in EDITOR=nano or EDITOR='code --wait'.
    Other commands can use the device meanwhile.
    If the file is changed on the device meanwhile, or cannot be written, your changes are kept on this computer.
    """
    at = target(file)
    if at.name in ("", ".", ".."):
        raise RequestError("a folder cannot be edited", where=file, hint="Name a file in it")
    with server.boards() as boards:
        at = at.of(boards)
        board = boards.board(at.device, interrupt=interrupt)
        before = _read(board, at.path)
        copy = Path(tempfile.mkdtemp(prefix="fastflight-")) / local_name(at.name)
        on_board = before or b""
        try:
            copy.write_bytes(on_board)
            _open_editor(copy)
            edited = copy.read_bytes()
            if edited == on_board:
                screen.complain(f"{at}: {'not created' if before is None else 'unchanged'}")
                return
            if _read(board, at.path) != before:
                raise DataError(
                    "it was changed on the device while you edited it",
                    where=str(at),
                    hint="Compare both, then write yours with fastflight put",
                )
            board.put_file(at.path, copy, resume=False)
            on_board = edited
            screen.line(f"{at}: {screen.size(len(edited))} written")
        finally:
            if copy.exists() and copy.read_bytes() != on_board:
                screen.complain(f"your changes are kept in {copy}")
            else:
                shutil.rmtree(copy.parent)


def _read(board: Board, path: str) -> bytes | None:
    """Return the content of the file on the device, or None if there is none."""
    try:
        return board.read_bytes(path)
    except FileMissing:
        return None


def _open_editor(path: Path) -> None:
    """Open the editor and wait for its end. Raises `RequestError` if it cannot be started or fails."""
    words = os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR
    try:
        with _ctrl_c_is_for_the_editor():
            command = [*shlex.split(words, posix=sys.platform != "win32"), str(path)]
            code = subprocess.run(command).returncode  # noqa: S603  # the user's own editor
    except (OSError, ValueError) as error:
        raise RequestError(
            f"the editor cannot be started: {error}", where=words, hint="Name another: EDITOR=nano fastflight edit ..."
        ) from error
    if code:
        raise RequestError(f"the editor ended with exit code {code}", where=words, hint="Nothing was written")


@contextmanager
def _ctrl_c_is_for_the_editor() -> Iterator[None]:
    """Ignore Ctrl-C in the block. A terminal sends it to this process too. The editor's own handling is unchanged."""
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
