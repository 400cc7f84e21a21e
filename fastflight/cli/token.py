"""`fastflight token`: manage the file that says which clients may use a server, and for what."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fastflight import user_folders
from fastflight.access.identity import scopes
from fastflight.access.tokens import CERTIFICATE_NAME, Book, Certificate, issued, unreserved
from fastflight.app import token_file
from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors, usage_errors
from fastflight.cli.options import AsJson
from fastflight.cli.secret_files import new_files, refuse_existing
from fastflight.errors import RequestError

app = typer.Typer(
    help="Grant access to a server: by tokens, or by names of client certificates.",
    no_args_is_help=True,
    add_completion=False,
)

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
PERIOD = re.compile(r"([0-9]{1,6})([mhd])")

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        envvar="FASTFLIGHT_TOKENS",
        metavar="FILE",
        help="The server's token file. By default fastflight/tokens.json in the folder for your settings.",
    ),
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client in the server's log and limits.")],
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
        typer.Option("--expires", metavar="PERIOD", help="How long the token is valid: 90d, 12h, 30m."),
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Grant access to the client certificate of this name; make no token.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the token to this file, which only you may read."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
    file: File = None,
) -> None:
    """Grant access to a client. The token is printed on stdout, or written to --out FILE, and stored nowhere else.

    A running server that uses this token file accepts it within two seconds.
    """
    with report_errors():
        path = file or default_file()
        if certificate:
            with usage_errors():
                granted = scopes(scope)
                _check_certificate(name, expires, out)
            token_file.change(path, lambda book: book.adding(Certificate(name, granted)))
            screen.complain(f"access for the certificate {name} is granted in {path}")
            return
        with usage_errors():
            now = datetime.now(UTC).replace(microsecond=0)
            entry, token = issued(name, scopes(scope), now, None if expires is None else now + period(expires))
        if out is not None:
            if not force:
                refuse_existing([out])
            with new_files([(out, f"{token}\n".encode(), 0o600)], force):
                token_file.change(path, lambda book: book.adding(entry))
            screen.complain(f"token {entry.id} of {name} is granted in {path}; the token itself is only in {out}")
            return
        token_file.change(path, lambda book: book.adding(entry))
        screen.complain(f"token {entry.id} of {name} is granted in {path}; this is the only time that it is shown:")
        screen.line(token)


def _check_certificate(name: str, expires: str | None, out: Path | None) -> None:
    """Raise `RequestError` for options that do not go with `--certificate`, and for what is no name of one."""
    if expires is not None:
        raise RequestError("a certificate has its own expiry date", where="--expires")
    if out is not None:
        raise RequestError("there is no token for a certificate", where="--out")
    if not CERTIFICATE_NAME.fullmatch(name):
        raise RequestError("not a name of a certificate", where=name[:80])
    unreserved(name)


@app.command("list")
def list_(file: File = None, json: AsJson = False) -> None:
    """List the clients and what each may do. The list contains no secrets."""
    with report_errors():
        book = Book.decode(token_file.read(file or default_file()))
    now = datetime.now(UTC)
    entries = [
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
    of_certificates = {"id": None, "created": None, "expires": None, "expired": False}
    entries += [
        {**of_certificates, "name": each.name, "scopes": " ".join(map(str, each.scopes))} for each in book.certificates
    ]
    if json:
        screen.as_json(entries)
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
            for each in entries
        ],
    )


@app.command()
def revoke(
    name: Annotated[
        str, typer.Argument(metavar="NAME|ID", help="All tokens and the certificate of a name, or one by its id.")
    ],
    file: File = None,
) -> None:
    """Revoke access. Running servers that use this file notice within two seconds and end the client's streams."""
    with report_errors():
        token_file.change(file or default_file(), lambda book: book.without(name))
        screen.complain(f"{name} is revoked")


def period(text: str) -> timedelta:
    """Parse a period such as `90d`, `12h` or `30m`. Raises `RequestError` if `text` is none."""
    match = PERIOD.fullmatch(text)
    if match is None or not int(match[1]):
        raise RequestError("not a period", where=f"--expires {text[:20]}", hint="As in 90d, 12h or 30m")
    return int(match[1]) * UNITS[match[2]]


def default_file() -> Path:
    """Return the default token file."""
    return user_folders.for_settings() / "tokens.json"
