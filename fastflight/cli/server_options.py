"""The options of commands that connect to a server: its URL, and the credentials to send.

A command has a parameter `server: Server = DEFAULT_SERVER` and the decorator `with_server_options`, which replaces the
parameter by the five options. Commands on a device have `with_device_options` instead: they also take `--device`, and
work on the only board that is plugged in if no server runs.

No option takes a token itself: all users of a computer can see its command lines. The token is read from a file
(`--token-file`) or from the environment variable `FASTFLIGHT_TOKEN`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import typer

from fastflight.cli import screen
from fastflight.cli.chain import shared_clients
from fastflight.cli.exit_codes import REFUSED, usage_errors
from fastflight.client.answers import DEFAULT_LOCATION, SERVER_VARIABLE, server_url
from fastflight.errors import RequestError, TransportError

if TYPE_CHECKING:
    from fastflight.app.local_board import LocalBoard
    from fastflight.cli.interruptible_client import InterruptibleClient
    from fastflight.client import Credentials

R = TypeVar("R")

# The heading of these options in `--help`.
CONNECTION = "Connection"

TOKEN_VARIABLE = "FASTFLIGHT_TOKEN"  # noqa: S105  # the name of a variable
# Eight times the length of the longest token.
MAX_TOKEN_FILE_BYTES = 4096
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

    def client(self, *, changes: bool = False) -> InterruptibleClient:
        """Return a client of this server. A wrong URL or credential is reported as a wrong command line.

        Commands of a chain (`chain`) share it. With `changes`, the command overwrites or removes something: it asks
        first if the board is there by chance, and ends if the answer is not yes.
        """
        shared = shared_clients()
        if changes and not (shared is not None and shared.is_named) and self.is_by_chance:
            _ask_for_board()
        if shared is None:
            return self._open()
        return cast("InterruptibleClient", nullcontext(shared.client(self, self._open)))

    def _open(self) -> InterruptibleClient:
        if self.device is not None:
            return _client_of_board(self.device, self.agent)
        if self.is_by_chance:
            try:
                return _client_of_board("auto", self.agent)
            except TransportError as error:
                raise TransportError(
                    f"no server runs there, and {error.what}",
                    where=DEFAULT_LOCATION,
                    hint=f"Start one: fastflight serve. {error.hint}",
                ) from error
        return _client_of_server(self)


class _BoardClient:
    """A client of one board without a server, which starts with the few verbs of `LocalBoard` and loads no Arrow.

    The first verb that it lacks closes the board, and calls `open_full` for a server in this process and its client.
    From then on, all verbs are that client's.
    """

    def __init__(self, board: LocalBoard, open_full: Callable[[ExitStack], InterruptibleClient]) -> None:
        self._client: LocalBoard | InterruptibleClient = board
        self._open_full = open_full
        self._parts = ExitStack()
        self._parts.callback(board.close)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client if hasattr(self._client, verb) else self._full, verb)

    @functools.cached_property
    def _full(self) -> InterruptibleClient:
        self._client.close()  # the port of a board has one owner
        self._client = self._open_full(self._parts)
        return self._client

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _client_of_board(url: str, agent: bool) -> InterruptibleClient:
    """Return a client of one board without a server. For verbs that `LocalBoard` lacks, one starts in this process."""
    from fastflight.app.local_board import LocalBoard

    def open_full(parts: ExitStack) -> InterruptibleClient:
        from fastflight.app.local_board import open_local_board
        from fastflight.cli.interruptible_client import InterruptibleClient, keep_pandas_out
        from fastflight.cli.log import log_to_stderr

        keep_pandas_out()
        log_to_stderr(as_json=False, least=logging.ERROR)
        running = parts.enter_context(open_local_board(board.name, board.url, agent=agent))
        return parts.enter_context(InterruptibleClient(running.location))

    with usage_errors():
        board = LocalBoard(url, agent=agent)
    return cast("InterruptibleClient", _BoardClient(board, open_full))


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


def _client_of_server(server: Server) -> InterruptibleClient:
    from fastflight.cli.interruptible_client import InterruptibleClient, keep_pandas_out

    keep_pandas_out()
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


def _option(kind: type, name: str, help: str, **keys: Any) -> Any:
    """Return the annotation of an option that may be left out."""
    return Annotated[kind | None, typer.Option(name, help=help, rich_help_panel=CONNECTION, **keys)]


SERVER_OPTIONS: Mapping[str, Any] = {
    "server": _option(
        str,
        "--server",
        f"URL of the server, or HOST:PORT. By default {DEFAULT_LOCATION}.",
        envvar=SERVER_VARIABLE,
        metavar="URL",
    ),
    "token_file": _option(
        Path,
        "--token-file",
        f"File with your token. Without it, the variable {TOKEN_VARIABLE} is used.",
        envvar="FASTFLIGHT_TOKEN_FILE",
        metavar="FILE",
    ),
    "tls_ca": _option(
        Path, "--tls-ca", "CA that signed the server's certificate, PEM.", envvar="FASTFLIGHT_TLS_CA", metavar="FILE"
    ),
    "tls_cert": _option(
        Path, "--tls-cert", "Your client certificate, PEM.", envvar="FASTFLIGHT_TLS_CERT", metavar="FILE"
    ),
    "tls_key": _option(Path, "--tls-key", "The key of --tls-cert, PEM.", envvar="FASTFLIGHT_TLS_KEY", metavar="FILE"),
}
DEVICE_OPTIONS: Mapping[str, Any] = {
    "board": _option(
        str,
        "--device",
        "Use this board without a server, as in /dev/ttyACM0 or socket://host:port. `auto`, or no server: "
        "the only board that is plugged in.",
        metavar="[NAME=]URL",
    ),
    "agent": _option(bool, "--agent", "With --device: its program runs fastflight's agent."),
    **SERVER_OPTIONS,
}


def with_server_options(command: Callable[..., R]) -> Callable[..., R]:
    """Return `command` with the options of `SERVER_OPTIONS` in place of its parameter `server`.

    The result makes a `Server` of the options and passes it on.
    """
    return _with_options(command, SERVER_OPTIONS)


def with_device_options(command: Callable[..., R]) -> Callable[..., R]:
    """Return `command` with the options of `DEVICE_OPTIONS` in place of its parameter `server`."""
    return _with_options(command, DEVICE_OPTIONS)


def _with_options(command: Callable[..., R], offered: Mapping[str, Any]) -> Callable[..., R]:
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> R:
        values = {name: kwargs.pop(name) for name in offered}
        url, board = values.pop("server"), values.pop("board", None)
        agent = bool(values.pop("agent", False))
        if board is not None and url not in (None, os.environ.get(SERVER_VARIABLE)):
            raise typer.BadParameter("--server and --device exclude each other: leave one of them out")
        return command(*args, **kwargs, server=Server(url, values, board, offered is DEVICE_OPTIONS, agent))

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in offered.items()
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "server"]
    run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *options)}
    return run


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
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_TOKEN_FILE_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    words = content.split()
    if len(content) > MAX_TOKEN_FILE_BYTES or len(words) != 1 or not words[0].isascii():
        raise RequestError(
            "not a file with one token",
            where=str(path),
            hint="Make one: fastflight token add NAME --scope ... --out FILE",
        )
    if sys.platform != "win32" and mode & 0o077:
        screen.complain(f"warning: other users can read {path}: chmod 600 {path}")
    return words[0].decode()
