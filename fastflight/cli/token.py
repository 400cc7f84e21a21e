"""`fastflight token`: who may ask a server, and what they may there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fastflight.access.identity import scopes
from fastflight.access.tokens import CERTIFICATE_NAME, Book, Certificate, issued, unreserved
from fastflight.app import token_file
from fastflight.cli import screen
from fastflight.cli.exits import told_in_one_line
from fastflight.cli.new_files import absent, new_files
from fastflight.cli.target import AsJson
from fastflight.errors import RequestError

app = typer.Typer(help="Who may ask a server, and what: tokens, and names of certificates.", no_args_is_help=True)

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
PERIOD = re.compile(r"([0-9]{1,6})([mhd])")

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        envvar="FASTFLIGHT_TOKENS",
        metavar="FILE",
        help="The server's file of tokens. By default fastflight/tokens.json among your settings.",
    ),
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: the server's log and limits name it so.")],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="VERBS:DEVICES",
            help="read, write, session, exec, admin on a glob of devices, as in 'read,write:weather-*'; may be given "
            "again.",
        ),
    ],
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="PERIOD", help="How long it is good: 90d, 12h, 30m."),
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="For the client's certificate of this name; there is no token then.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the token to this file, which only its owner may read."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the file of --out if it exists.")] = False,
    file: File = None,
) -> None:
    """Grant something. The token is printed once, to stdout, or written to --out FILE: it is kept nowhere else.

    A server that runs with this file knows of it within two seconds.
    """
    with told_in_one_line():
        path = file or default_file(os.environ)
        granted, now = scopes(scope), datetime.now(UTC).replace(microsecond=0)
        if certificate:
            if expires is not None:
                raise RequestError("a certificate says by itself when it expires", where="--expires")
            if out is not None:
                raise RequestError("there is no token for a certificate", where="--out")
            if not CERTIFICATE_NAME.fullmatch(name):
                raise RequestError("not a name of a certificate", where=name[:80])
            unreserved(name)
            token_file.change(path, lambda book: book.adding(Certificate(name, granted)))
            screen.complain(f"the certificate {name} is known in {path}")
            return
        entry, token = issued(name, granted, now, None if expires is None else now + period(expires))
        if out is not None:
            if not force:
                absent([out])
            with new_files([(out, f"{token}\n".encode(), 0o600)], force):
                token_file.change(path, lambda book: book.adding(entry))
            screen.complain(f"token {entry.id} of {name} is known in {path}; it is in {out} and nowhere else")
            return
        token_file.change(path, lambda book: book.adding(entry))
        screen.complain(f"token {entry.id} of {name} is known in {path}; it is shown here and never again:")
        screen.line(token)


@app.command("list")
def list_(file: File = None, json: AsJson = False) -> None:
    """Show what is granted to whom. There is nothing secret in it."""
    with told_in_one_line():
        book = Book.decode(token_file.read(file or default_file(os.environ)))
    now = datetime.now(UTC)
    known = [
        {
            "id": token.id,
            "name": token.name,
            "scopes": " ".join(map(str, token.scopes)),
            "created": token.created.isoformat(),
            "expires": None if token.expires is None else token.expires.isoformat(),
            "expired": not token.good_at(now.timestamp()),
        }
        for token in book.tokens
    ]
    known += [
        {
            "id": None,
            "name": certificate.name,
            "scopes": " ".join(map(str, certificate.scopes)),
            "created": None,
            "expires": None,
            "expired": False,
        }
        for certificate in book.certificates
    ]
    if json:
        screen.as_json(known)
        return
    screen.table(
        ("id", "name", "may", "until"),
        [
            (
                str(each["id"] or "certificate"),
                str(each["name"]),
                str(each["scopes"]),
                f"{each['expires'] or 'revoked by hand'}{', expired' if each['expired'] else ''}",
            )
            for each in known
        ],
    )


@app.command()
def revoke(
    name: Annotated[
        str, typer.Argument(metavar="NAME|ID", help="All tokens and the certificate of a name, or one by its id.")
    ],
    file: File = None,
) -> None:
    """Take it back. Servers that run with this file know of it within two seconds, and end what it began."""
    with told_in_one_line():
        token_file.change(file or default_file(os.environ), lambda book: book.without(name))
        screen.complain(f"{name} is revoked")


def period(text: str) -> timedelta:
    """What `90d` means. `RequestError` for what is none."""
    match = PERIOD.fullmatch(text)
    if match is None or not int(match[1]):
        raise RequestError("not a period", where=f"--expires {text[:20]}", hint="As in 90d, 12h or 30m")
    return int(match[1]) * UNITS[match[2]]


def default_file(environment: Mapping[str, str]) -> Path:
    """Where tokens are kept if nobody says where: the platform's folder for a user's settings."""
    if sys.platform == "win32":
        base = Path(environment.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "fastflight" / "tokens.json"
