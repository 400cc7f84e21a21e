"""`fastflight cert`: make certificates for a server and its clients, signed by a private CA.

For sites without a CA. Only the owner of a key file may read it. Existing files are replaced only with `--force`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.access.tokens import NAME
from fastflight.app.key_files import read_pem
from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.secret_files import new_files, refuse_existing
from fastflight.errors import RequestError
from fastflight.extras import needs

if TYPE_CHECKING:
    from fastflight.app.certificates import CertificateAuthority

app = typer.Typer(
    help="Make certificates for a server and its clients, signed by your own CA.",
    no_args_is_help=True,
    add_completion=False,
)

# About three months; renewing takes one command. The CA itself does not expire.
DAYS = 90
MAX_DAYS = 3650

Folder = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="Folder for the files; ca.pem and ca.key are made there if missing."),
]
Days = Annotated[
    int, typer.Option("--days", min=1, max=MAX_DAYS, metavar="N", help="Days until the certificate expires.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


@app.command()
def server(
    hosts: Annotated[
        list[str], typer.Argument(metavar="HOST...", help="Names and addresses by which clients reach the server.")
    ],
    directory: Folder = Path(),
    days: Days = DAYS,
    force: Force = False,
) -> None:
    """Make server.pem and server.key."""
    with report_errors():
        written = _issue(directory, "server", hosts, None, days, force)
        screen.line(f"serve --server grpc+tls://{hosts[0]}:8815 --tls-cert {written[0]} --tls-key {written[1]}")
        screen.line(f"clients: --server grpc+tls://{hosts[0]}:8815 --tls-ca {directory / 'ca.pem'}")


@app.command()
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name for the server, in its certificate.")],
    directory: Folder = Path(),
    days: Days = DAYS,
    force: Force = False,
) -> None:
    """Make NAME.pem and NAME.key for a client of a server that runs with --client-ca ca.pem."""
    if not NAME.fullmatch(name) or name.startswith(".") or name in ("ca", "server"):
        raise typer.BadParameter(f"{name[:80]!r} is not a name for a client's files: use letters, digits, _ . @ -")
    with report_errors():
        written = _issue(directory, name, [], name, days, force)
        screen.line(f"grant access: fastflight token add {name} --certificate --scope read:*")
        screen.line(f"connect with: --tls-ca {directory / 'ca.pem'} --tls-cert {written[0]} --tls-key {written[1]}")


def _issue(
    folder: Path, stem: str, hosts: list[str], common_name: str | None, days: int, force: bool
) -> tuple[Path, Path]:
    """Write `stem`.pem and `stem`.key, a certificate and its key, to `folder`. Return their paths."""
    paths = folder / f"{stem}.pem", folder / f"{stem}.key"
    if not force:
        refuse_existing(paths)
    until = datetime.now(UTC) + timedelta(days=days)
    try:
        certificate, key = _authority(folder).issue(hosts, common_name, until)
    except ValueError as error:  # neither a host name nor an address
        raise RequestError("a certificate cannot have this name", where=" ".join(hosts) or stem) from error
    _write(paths, certificate, key, force)
    return paths


def _authority(folder: Path) -> CertificateAuthority:
    """Return the CA in `folder`, and make it first if there is none."""
    with needs("tls", "`cert`"):  # not at the top: importing it takes longer than most commands take to run
        from fastflight.app.certificates import CertificateAuthority

    paths = folder / "ca.pem", folder / "ca.key"
    if paths[0].exists() or paths[1].exists():
        try:
            return CertificateAuthority.load(read_pem(paths[0]), read_pem(paths[1]))
        except (ValueError, TypeError) as error:
            raise RequestError("these files are not a CA and its key", where=f"{paths[0]}, {paths[1]}") from error
    authority = CertificateAuthority.create()
    _write(paths, *authority.pem, False)
    screen.line(f"made a CA: give {paths[0]} to everybody, and {paths[1]} to nobody")
    return authority


def _write(paths: tuple[Path, Path], certificate: bytes, key: bytes, force: bool) -> None:
    """Write a certificate and its key. Only their owner may change them, and only the owner may read the key."""
    with new_files(((paths[0], certificate, 0o644), (paths[1], key, 0o600)), force):
        pass
