"""Several commands in one process: `fastflight exec 'x = 1' + exec 'print(x)'`.

The commands share their boards, so a board without a server is opened once, and its variables stay from one command to
the next. A command without --device and --server uses what the one before has used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from fastflight.cli import screen

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards, Server

# Stands between two commands.
PLUS = "+"


class SharedBoards:
    """The boards of a chain of commands. They stay open as long as `until`."""

    def __init__(self, until: ExitStack) -> None:
        self._open = until
        self._boards: dict[tuple[Any, ...], Boards] = {}

    def boards(self, server: Server, open_boards: Callable[[], AbstractContextManager[Boards]]) -> Boards:
        """Return the boards of `server`, or of the last used server if the command line names none."""
        key = (server.url, server.device, *server.credential_files.values())
        if not server.is_named and self._boards:
            key = next(reversed(self._boards))
        boards = self._boards.pop(key, None)
        if boards is None:
            boards = self._open.enter_context(open_boards())
        self._boards[key] = boards
        return boards

    @property
    def is_named(self) -> bool:
        """Whether a command before has named the server or the board that the next one uses."""
        return bool(self._boards) and any(next(reversed(self._boards))[:2])


# The boards of the chain that the running command is part of.
SHARED: ContextVar[SharedBoards | None] = ContextVar("shared boards", default=None)


def run_chain(words: Sequence[str], run: Callable[[list[str]], object]) -> None:
    """Split `words` at each `+`, and `run` each command. The `SystemExit` of the first one that fails ends it."""
    commands = [list(group) for is_plus, group in groupby(words, PLUS.__eq__) if not is_plus]
    if len(commands) != words.count(PLUS) + 1:
        screen.complain(f"error: a command is missing before or after {PLUS}")
        raise SystemExit(typer.BadParameter.exit_code)
    with ExitStack() as until:
        until.callback(SHARED.reset, SHARED.set(SharedBoards(until)))
        for command in commands:
            try:
                run(command)
            except SystemExit as ended:
                if ended.code:
                    raise
