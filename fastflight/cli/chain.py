"""Several commands in one process: `fastflight exec 'x = 1' + exec 'print(x)'`; `fastflight script` has them in a file.

The commands share their clients, so a board without a server is opened once, and its variables stay from one command to
the next. A command without --device and --server uses what the one before has used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import typer

from fastflight.cli import screen

if TYPE_CHECKING:
    from fastflight.cli.interruptible_client import InterruptibleClient
    from fastflight.cli.server_options import Server

# Stands between two commands.
PLUS = "+"


class SharedClients:
    """The clients of a chain of commands. They stay open until the end of the chain."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._clients: dict[tuple[Any, ...], InterruptibleClient] = {}

    def client(
        self, server: Server, open_client: Callable[[], AbstractContextManager[InterruptibleClient]]
    ) -> InterruptibleClient:
        """Return the client of `server`; if the command line names none, the one that was used last."""
        key = (server.url, server.device, *server.credential_files.values())
        if not server.is_named and self._clients:
            key = next(reversed(self._clients))
        client = self._clients.pop(key, None)
        if client is None:
            client = self._open.enter_context(open_client())
        self._clients[key] = client
        return client

    def close(self) -> None:
        self._open.close()


_shared: ContextVar[SharedClients | None] = ContextVar("shared clients", default=None)


def shared_clients() -> SharedClients | None:
    """Return the clients of the chain that the running command is part of. None outside of a chain."""
    return _shared.get()


@contextmanager
def sharing_clients() -> Iterator[None]:
    """Have the commands of the block share their clients. Within such a block, do nothing."""
    if _shared.get() is not None:
        yield
        return
    clients = SharedClients()
    token = _shared.set(clients)
    try:
        yield
    finally:
        _shared.reset(token)
        clients.close()


def run_chain(words: Sequence[str], run: Callable[[list[str]], object]) -> None:
    """Split `words` at each `+`, and `run` each command. The `SystemExit` of the first one that fails ends it."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word == PLUS:
            commands.append([])
        else:
            commands[-1].append(word)
    if not all(commands):
        screen.complain(f"error: a command is missing before or after {PLUS}")
        raise SystemExit(typer.BadParameter.exit_code)
    with sharing_clients():
        for command in commands:
            try:
                run(command)
            except SystemExit as ended:
                if ended.code:
                    raise
