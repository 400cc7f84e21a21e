"""`fastflight cert`: a CA of your own, and certificates for a server and its clients.

For a laboratory without a CA. The keys are written for their owner alone, and nothing is written over unless told to.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.access.tokens import NAME
from fastflight.app.access import pem
from fastflight.cli import screen
from fastflight.cli.exits import told_in_one_line
from fastflight.cli.new_files import absent, new_files
from fastflight.errors import RequestError

if TYPE_CHECKING:
    import trustme

app = typer.Typer(help="Certificates for a server and its clients, of a CA of your own.", no_args_is_help=True)

# A quarter: renewing is one command. The CA itself does not expire; who has lost its key makes another.
DAYS = 90
MAX_DAYS = 3650

Folder = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where the files are; ca.pem and ca.key are made there if missing.")
]
Days = Annotated[int, typer.Option("--days", min=1, max=MAX_DAYS, metavar="N", help="How long it is good.")]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there.")]


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
    with told_in_one_line():
        written = _issue(directory, "server", hosts, None, days, force)
        screen.line(f"serve --server grpc+tls://{hosts[0]}:8815 --tls-cert {written[0]} --tls-key {written[1]}")
        screen.line(f"clients: --server grpc+tls://{hosts[0]}:8815 --tls-ca {directory / 'ca.pem'}")


@app.command()
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the server knows the client by.")],
    directory: Folder = Path(),
    days: Days = DAYS,
    force: Force = False,
) -> None:
    """Make NAME.pem and NAME.key for a client of a server that has --client-ca ca.pem."""
    with told_in_one_line():
        if not NAME.fullmatch(name) or name.startswith(".") or name in ("ca", "server"):
            raise RequestError("not a name for a client's files", where=name[:80], hint="Use letters, digits, _ . @ -")
        written = _issue(directory, name, [], name, days, force)
        screen.line(f"grant it: fastflight token add {name} --certificate --scope read:*")
        screen.line(f"show it: --tls-ca {directory / 'ca.pem'} --tls-cert {written[0]} --tls-key {written[1]}")


def _issue(
    folder: Path, stem: str, hosts: list[str], common_name: str | None, days: int, force: bool
) -> tuple[Path, Path]:
    """Write a certificate and its key; their paths."""
    paths = folder / f"{stem}.pem", folder / f"{stem}.key"
    if not force:
        absent(paths)
    until = datetime.now(UTC) + timedelta(days=days)
    try:
        issued = _authority(folder).issue_cert(*hosts, common_name=common_name, not_after=until)
    except ValueError as error:  # no host's name, or no address
        raise RequestError("not a name that a certificate can have", where=" ".join(hosts) or stem) from error
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    _write(paths, chain, issued.private_key_pem.bytes(), force)
    return paths


def _authority(folder: Path) -> trustme.CA:
    """The CA in a folder, made if there is none."""
    # What it is made with takes longer to load than most commands to run.
    import trustme

    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() or key.exists():
        try:
            return trustme.CA.from_pem(pem(certificate), pem(key))
        except (ValueError, TypeError) as error:
            raise RequestError("these are no CA", where=f"{certificate}, {key}") from error
    made = trustme.CA(organization_name="fastflight")
    _write((certificate, key), made.cert_pem.bytes(), made.private_key_pem.bytes(), False)
    screen.line(f"made a CA: {certificate} is for all, {key} for nobody else")
    return made


def _write(paths: tuple[Path, Path], certificate: bytes, key: bytes, force: bool) -> None:
    """Write a certificate and its key, which only their owner may change, and the key nobody else read."""
    with new_files(((paths[0], certificate, 0o644), (paths[1], key, 0o600)), force):
        pass
