"""The server that a command asks, and what it is shown: five options for every such command, written once.

A token is not an option: what stands on a command line is seen by every user of a computer. It is read from a file, or
from the environment (`FASTFLIGHT_TOKEN`).
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

from fastflight.app.access import pem
from fastflight.cli import screen
from fastflight.cli.exits import told_in_one_line, usage_errors
from fastflight.client import DEFAULT_LOCATION, AsyncFastFlightClient, Credentials
from fastflight.errors import RequestError

R = TypeVar("R")

TOKEN_VARIABLE = "FASTFLIGHT_TOKEN"  # noqa: S105  # the name of a variable
# The longest token is a tenth of this.
MAX_TOKEN_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and what it is shown. A command that takes one has the options for it by `asking`."""

    location: str = DEFAULT_LOCATION
    credentials: Credentials = Credentials()

    def client(self) -> AsyncFastFlightClient:
        """A client to it."""
        with usage_errors():
            return AsyncFastFlightClient(self.location, credentials=self.credentials)


HERE = Server()
OPTIONS: Mapping[str, Any] = {
    "server": Annotated[
        str, typer.Option("--server", envvar="FASTFLIGHT_SERVER", metavar="URL", help="The server to ask.")
    ],
    "token_file": Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            envvar="FASTFLIGHT_TOKEN_FILE",
            metavar="FILE",
            help=f"The token to show; without it, the variable {TOKEN_VARIABLE} is.",
        ),
    ],
    "tls_ca": Annotated[
        Path | None,
        typer.Option("--tls-ca", envvar="FASTFLIGHT_TLS_CA", metavar="FILE", help="Whose servers to trust, PEM."),
    ],
    "tls_cert": Annotated[
        Path | None,
        typer.Option("--tls-cert", envvar="FASTFLIGHT_TLS_CERT", metavar="FILE", help="Your certificate, PEM."),
    ],
    "tls_key": Annotated[
        Path | None, typer.Option("--tls-key", envvar="FASTFLIGHT_TLS_KEY", metavar="FILE", help="Its key, PEM.")
    ],
}


def asking(command: Callable[..., R]) -> Callable[..., R]:
    """A command with the parameter `server`, as one with the options that say which and how."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> R:
        told = {name: given.pop(name) for name in OPTIONS}
        with told_in_one_line(), usage_errors():
            server = Server(told.pop("server"), credentials(os.environ, **told))
        return command(*args, **given, server=server)

    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULT_LOCATION if name == "server" else None,
            annotation=annotation,
        )
        for name, annotation in OPTIONS.items()
    ]
    kept = [each for each in signature.parameters.values() if each.name != "server"]
    run.__signature__ = signature.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*kept, *options)}
    return run


def credentials(
    environment: Mapping[str, str],
    *,
    token_file: Path | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> Credentials:
    """What the options and the environment mean. `RequestError` names the file that is not good."""
    token = environment.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        token = _token(token_file)
    return Credentials(
        token,
        None if tls_ca is None else pem(tls_ca),
        None if tls_cert is None else pem(tls_cert),
        None if tls_key is None else pem(tls_key),
    )


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_TOKEN_FILE_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    words = content.split()
    if len(content) > MAX_TOKEN_FILE_BYTES or len(words) != 1 or not words[0].isascii():
        raise RequestError(
            "not a file with one token", where=str(path), hint="As in: fastflight token add NAME --scope ... --out FILE"
        )
    if sys.platform != "win32" and mode & 0o077:
        screen.complain(f"warning: other users may read {path}: chmod 600 {path}")
    return words[0].decode()
