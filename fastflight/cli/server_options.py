"""The options of commands that connect to a server: its URL, and the credentials to send.

A command has a parameter `server: Server = DEFAULT_SERVER` and the decorator `with_server_options`, which replaces the
parameter by the five options.

No option takes a token itself: all users of a computer can see its command lines. The token is read from a file
(`--token-file`) or from the environment variable `FASTFLIGHT_TOKEN`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fastflight.app.access_settings import read_pem
from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors, usage_errors
from fastflight.cli.interruption import InterruptibleClient
from fastflight.client import DEFAULT_LOCATION, Credentials
from fastflight.errors import RequestError

R = TypeVar("R")

TOKEN_VARIABLE = "FASTFLIGHT_TOKEN"  # noqa: S105  # the name of a variable
# Eight times the length of the longest token.
MAX_TOKEN_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Server:
    """The URL of a server, and the credentials that a command sends to it."""

    location: str = DEFAULT_LOCATION
    credentials: Credentials = Credentials()

    def client(self) -> InterruptibleClient:
        """Return a client of this server. A wrong URL or credential is reported as a wrong command line."""
        with usage_errors():
            return InterruptibleClient(self.location, credentials=self.credentials)


DEFAULT_SERVER = Server()
SERVER_OPTIONS: Mapping[str, Any] = {
    "server": Annotated[
        str, typer.Option("--server", envvar="FASTFLIGHT_SERVER", metavar="URL", help="URL of the server.")
    ],
    "token_file": Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            envvar="FASTFLIGHT_TOKEN_FILE",
            metavar="FILE",
            help=f"File with your token. Without it, the variable {TOKEN_VARIABLE} is used.",
        ),
    ],
    "tls_ca": Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", envvar="FASTFLIGHT_TLS_CA", metavar="FILE", help="CA that signed the server's certificate, PEM."
        ),
    ],
    "tls_cert": Annotated[
        Path | None,
        typer.Option("--tls-cert", envvar="FASTFLIGHT_TLS_CERT", metavar="FILE", help="Your client certificate, PEM."),
    ],
    "tls_key": Annotated[
        Path | None,
        typer.Option("--tls-key", envvar="FASTFLIGHT_TLS_KEY", metavar="FILE", help="The key of --tls-cert, PEM."),
    ],
}


def with_server_options(command: Callable[..., R]) -> Callable[..., R]:
    """Return `command` with the options of `SERVER_OPTIONS` in place of its parameter `server`.

    The result makes a `Server` of the options and passes it on.
    """
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> R:
        values = {name: kwargs.pop(name) for name in SERVER_OPTIONS}
        with report_errors(), usage_errors():
            server = Server(values.pop("server"), read_credentials(os.environ, **values))
        return command(*args, **kwargs, server=server)

    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULT_LOCATION if name == "server" else None,
            annotation=annotation,
        )
        for name, annotation in SERVER_OPTIONS.items()
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
