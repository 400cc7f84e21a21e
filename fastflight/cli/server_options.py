"""The options of commands that connect to a server: its URL, and the credentials to send.

A command has a parameter `server: Server = DEFAULT_SERVER` and the decorator `with_server_options`, which replaces the
parameter by the five options. Commands on a device have `with_device_options` instead: they also take `--device`, and
work on the only board that is plugged in if no server runs.

No option takes a token itself: all users of a computer can see its command lines. The token is read from a file
(`--token-file`) or from the environment variable `FASTFLIGHT_TOKEN`.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack
from urllib.parse import urlsplit

import typer

from fastflight.cli import screen
from fastflight.cli.arrow_loading import load_arrow
from fastflight.cli.chain import SHARED
from fastflight.cli.exit_codes import REFUSED, usage_errors
from fastflight.cli.options import Option, option, with_options
from fastflight.client.answers import DEFAULT_LOCATION, SERVER_VARIABLE, server_url
from fastflight.errors import RequestError, TransportError

if TYPE_CHECKING:
    from fastflight.app.local_board import PluggedBoard
    from fastflight.cli.interruptible_client import InterruptibleClient
    from fastflight.client import Credentials, Device
    from fastflight.client.board import Board
    from fastflight.client.options import FileOptions

# The heading of these options in `--help`.
CONNECTION = "Connection"

TOKEN_VARIABLE = "FASTFLIGHT_TOKEN"  # noqa: S105  # the name of a variable
# Eight times the length of the longest token.
MAX_TOKEN_CHARACTERS = 4096
# A connection to this computer is accepted or refused at once.
PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Server:
    """What a command connects to: a server with its credentials, or a board of this computer without a server."""

    # The URL of the server. None: the command line does not name one.
    url: str | None = None
    # The options with the names of files that hold credentials.
    credential_files: Mapping[str, Path | None] = field(default_factory=dict)
    # The URL of a board to use without a server.
    device: str | None = None
    # Use the only board that is plugged in if no server is named and none answers at `DEFAULT_LOCATION`.
    or_board: bool = False
    # The program of that board runs the agent.
    agent: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the command line names a server or a board. A server in the environment is the default."""
        return self.device is not None or self.url not in (None, os.environ.get(SERVER_VARIABLE))

    @property
    def location(self) -> str:
        is_tls = any(self.credential_files.get(name) is not None for name in ("tls_ca", "tls_cert"))
        return server_url(self.url or DEFAULT_LOCATION, encrypted=is_tls)

    def credentials(self) -> Credentials:
        """Read the credentials. Files that cannot be read are reported as a wrong command line."""
        with usage_errors():
            return read_credentials(os.environ, **self.credential_files)

    @property
    def is_by_chance(self) -> bool:
        """Whether this is the board that happens to be plugged in: none is named, and no server answers."""
        return self.or_board and self.url is None and self.device is None and not _listens(DEFAULT_LOCATION)

    @contextmanager
    def boards(self, *, changes: bool = False, tables: bool = True) -> Iterator[Boards]:
        """Use its boards. A wrong URL or credential is reported as a wrong command line.

        Commands of a chain (`chain`) share them. With `changes`, the command overwrites or removes something: it asks
        first if the board is there by chance, and ends if the answer is not yes. Without `tables`, the command starts
        sooner, and can neither read nor write tables.
        """
        shared = SHARED.get()
        if changes and not (shared is not None and shared.is_named) and self.is_by_chance:
            _ask_for_board()
        if shared is not None:
            yield shared.boards(self, self._open)
            return
        with self._open(tables) as boards:
            yield boards

    @contextmanager
    def client(self) -> Iterator[InterruptibleClient]:
        """Use a client that reads rows, as `boards`. A board without a server gets one in this process."""
        with self.boards() as boards:
            yield boards.tables

    def _open(self, tables: bool = True) -> AbstractContextManager[Boards]:
        if self.device is not None:
            return _BoardAlone(self.device, self.agent)
        if self.is_by_chance:
            try:
                return _BoardAlone("auto", self.agent)
            except TransportError as error:
                raise TransportError(
                    f"no server runs there, and {error.what}",
                    where=DEFAULT_LOCATION,
                    hint=f"Start one: fastflight serve. {error.hint}",
                ) from error
        return _client_of_server(self, tables=tables)


class Boards(Protocol):
    """The boards that a command can use: the devices of a server, or one board without a server."""

    def devices(self) -> list[Device]: ...

    def board(self, device: str, **options: Unpack[FileOptions]) -> Board: ...

    @property
    def tables(self) -> InterruptibleClient:
        """A client that reads rows."""
        ...


class _BoardAlone:
    """The board at `url`, without a server. Loads no Arrow, until its rows are read: for them a server starts here."""

    def __init__(self, url: str, agent: bool) -> None:
        from fastflight.app.local_board import PluggedBoard

        with usage_errors():
            self._board = PluggedBoard(url, agent=agent)
        self._agent = agent
        self._current: PluggedBoard | InterruptibleClient = self._board
        self._until = ExitStack()
        self._until.callback(self._board.close)

    def devices(self) -> list[Device]:
        return self._current.devices()

    def board(self, device: str, **options: Unpack[FileOptions]) -> Board:
        return self._current.board(device, **options)

    @functools.cached_property
    def tables(self) -> InterruptibleClient:
        load_arrow()
        from fastflight.app.local_board import open_local_board
        from fastflight.cli.interruptible_client import InterruptibleClient
        from fastflight.cli.log import log_to_stderr

        self._board.close()  # the port of a board has one owner
        log_to_stderr(as_json=False, least=logging.ERROR)
        running = self._until.enter_context(open_local_board(self._board.name, self._board.url, agent=self._agent))
        self._current = client = self._until.enter_context(InterruptibleClient(running.location))
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._until.close()


def _ask_for_board() -> None:
    """Ask whether the only board that is plugged in is meant. Ends the command if not, and if nobody can answer."""
    from fastflight.app.local_board import board_url

    try:
        url = board_url("auto")
    except TransportError:
        return  # opening it will say why
    if not screen.can_ask():
        raise typer.BadParameter(
            f"no server runs at {DEFAULT_LOCATION}, and the board that is plugged in may be another one: name it, as "
            f"--device {url}, or give --device auto"
        )
    if not screen.confirm(f"No server runs at {DEFAULT_LOCATION}. Change the board at {url}?"):
        screen.complain("nothing was changed")
        raise typer.Exit(REFUSED)


def _client_of_server(server: Server, *, tables: bool) -> InterruptibleClient:
    load_arrow(numpy=tables)
    from fastflight.cli.interruptible_client import InterruptibleClient

    with usage_errors():
        return InterruptibleClient(server.location, credentials=server.credentials())


def _listens(location: str) -> bool:
    """Whether something listens at the address. True if that cannot be told: the call then gives the reason."""
    address = urlsplit(location)
    try:
        socket.create_connection((address.hostname, address.port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass
    return True


DEFAULT_SERVER = Server()


SERVER_OPTIONS: Mapping[str, Option] = {
    "server": option(
        str,
        "--server",
        f"URL of the server, or HOST:PORT. By default {DEFAULT_LOCATION}.",
        envvar=SERVER_VARIABLE,
        metavar="URL",
        panel=CONNECTION,
    ),
    "token_file": option(
        Path,
        "--token-file",
        f"File with your token. Without it, the variable {TOKEN_VARIABLE} is used.",
        envvar="FASTFLIGHT_TOKEN_FILE",
        metavar="FILE",
        panel=CONNECTION,
    ),
    **{
        name: option(
            Path,
            f"--{name.replace('_', '-')}",
            help,
            envvar=f"FASTFLIGHT_{name.upper()}",
            metavar="FILE",
            panel=CONNECTION,
        )
        for name, help in (
            ("tls_ca", "CA that signed the server's certificate, PEM."),
            ("tls_cert", "Your client certificate, PEM."),
            ("tls_key", "The key of --tls-cert, PEM."),
        )
    },
}
DEVICE_OPTIONS: Mapping[str, Option] = {
    "board": option(
        str,
        "--device",
        "Use this board without a server, as in /dev/ttyACM0 or socket://host:port. `auto`, or no server: "
        "the only board that is plugged in.",
        metavar="[NAME=]URL",
        panel=CONNECTION,
    ),
    "agent": option(bool, "--agent", "With --device: its program runs fastflight's agent.", panel=CONNECTION),
    **SERVER_OPTIONS,
}


def _server(values: dict[str, Any], *, or_board: bool = False) -> Server:
    url, board, agent = values.pop("server"), values.pop("board", None), bool(values.pop("agent", False))
    if board is not None and url not in (None, os.environ.get(SERVER_VARIABLE)):
        raise typer.BadParameter("--server and --device exclude each other: leave one of them out")
    return Server(url, values, board, or_board, agent)


# In place of a command's parameter `server`, a `Server`.
with_server_options = with_options("server", SERVER_OPTIONS, _server)
with_device_options = with_options("server", DEVICE_OPTIONS, functools.partial(_server, or_board=True))


def read_credentials(
    environment: Mapping[str, str],
    *,
    token_file: Path | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> Credentials:
    """Read the credentials from the files and from `environment`. `token_file` overrides the environment variable.

    Raises `RequestError`, which names the file, if one cannot be read or has the wrong content.
    """
    # Not at the top: a command on a board without a server has no credentials, and starts without Arrow.
    from fastflight.app.key_files import read_pem
    from fastflight.client import Credentials

    token = environment.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        token = _read_token(token_file)
    return Credentials(
        token,
        None if tls_ca is None else read_pem(tls_ca),
        None if tls_cert is None else read_pem(tls_cert),
        None if tls_key is None else read_pem(tls_key),
    )


def _read_token(path: Path) -> str:
    from fastflight.app.key_files import read_secret

    hint = "Make one: fastflight token add NAME --scope ... --out FILE"
    token = read_secret(path, hint)
    if len(token) > MAX_TOKEN_CHARACTERS or len(token.split()) != 1 or not token.isascii():
        raise RequestError("not a file with one token", where=str(path), hint=hint)
    if sys.platform != "win32" and path.stat().st_mode & 0o077:
        screen.complain(f"warning: other users can read {path}: chmod 600 {path}")
    return token
