"""Who may ask a server, and what it proves itself with.

In a fleet file, unknown keys are refused; files are relative to it::

    [auth]
    tokens = "tokens.json"         # made by `fastflight token`

    [tls]
    cert = "server.pem"            # made by `fastflight cert`, or by any CA
    key = "server.key"
    client_ca = "ca.pem"           # may be left out: clients need no certificate then
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from fastflight.errors import RequestError

PLAIN = ("grpc", "grpc+tcp")
ENCRYPTED = "grpc+tls"
AUTH_EXAMPLE = 'As in [auth] tokens = "tokens.json"'
TLS_EXAMPLE = 'As in [tls] cert = "server.pem", key = "server.key"'


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the CA of its clients, if they need certificates."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The file of tokens and the TLS files; without `tokens`, whoever reaches the port may everything."""

    tokens: Path | None = None
    tls: TlsFiles | None = None


OPEN = AccessSettings()


class FleetAuth(BaseModel):
    """The table `[auth]` of a fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tokens: str


class FleetTls(BaseModel):
    """The table `[tls]` of a fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cert: str
    key: str
    client_ca: str | None = None


def access_settings(
    auth: FleetAuth | None,
    tls: FleetTls | None,
    beside: Path | None,
    *,
    tokens: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
) -> AccessSettings:
    """What a fleet file, which lies in `beside`, and a command line mean together; the latter goes first."""
    folder = beside or Path()

    def chosen(option: Path | None, given: str | None) -> Path | None:
        return option if option is not None or given is None else resolve_path(folder, given, "auth or tls")

    book = chosen(tokens, None if auth is None else auth.tokens)
    chain = chosen(cert, None if tls is None else tls.cert)
    secret = chosen(key, None if tls is None else tls.key)
    clients = chosen(client_ca, None if tls is None else tls.client_ca)
    if chain is None and secret is None:
        if clients is not None:
            raise RequestError(
                "clients show certificates over TLS alone", where="--client-ca", hint="Give --tls-cert and --tls-key"
            )
        return AccessSettings(book)
    if chain is None or secret is None:
        raise RequestError(
            "a certificate and its key go together", where="--tls-cert, --tls-key", hint="Give both files"
        )
    if clients is not None and book is None:
        raise RequestError(
            "nothing says what a certificate grants",
            where="--client-ca",
            hint="Give --tokens FILE, made by `fastflight token add NAME --certificate --scope read:*`",
        )
    return AccessSettings(book, TlsFiles(chain, secret, clients))


def check_location(location: str, access: AccessSettings, example: str) -> None:
    """Refuse an address that cannot be listened on, or that others could reach who need to prove nothing there."""
    hint = f"Give one as {example}"
    try:
        parts = urlsplit(location)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise RequestError(f"not an address: {error}", where=location, hint=hint) from error
    if parts.scheme not in (*PLAIN, ENCRYPTED) or not host or port is None or parts.path.strip("/"):
        raise RequestError("not an address of a server", where=location, hint=hint)
    encrypted = parts.scheme == ENCRYPTED
    if not is_loopback(host) and not (encrypted and access.tls is not None and access.tokens is not None):
        raise RequestError(
            "others than this computer are served with TLS and tokens alone",
            where=location,
            hint=f"Give {fix(parts.netloc)}; `fastflight cert server NAME` and `fastflight token add NAME --scope "
            "read:*` make the files. Or listen on 127.0.0.1, and use a tunnel (ssh -L) from elsewhere",
        )
    if encrypted and access.tls is None:
        raise RequestError(
            "TLS takes a certificate",
            where=location,
            hint="Give --tls-cert FILE --tls-key FILE; `fastflight cert server NAME` makes them",
        )
    if access.tls is not None and not encrypted:
        raise RequestError("there is a certificate, and no TLS", where=location, hint=f"{ENCRYPTED}://{parts.netloc}")


def fix(netloc: str) -> str:
    """The options with which others than this computer may be served at `netloc`."""
    return f"--server {ENCRYPTED}://{netloc} --tls-cert server.pem --tls-key server.key --tokens tokens.json"


def is_loopback(host: str) -> bool:
    """Whether only this computer reaches `host`, as it is written: names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def resolve_path(folder: Path, given: str, where: str) -> Path:
    """The path `given` in a fleet file: `~` is a home directory, and a relative path is relative to `folder`.

    `RequestError` for the home of an unknown user.
    """
    try:
        return folder / Path(given).expanduser()
    except RuntimeError:
        raise RequestError(
            f"nobody here has the home of {given[:80]!r}", where=where, hint="Write it in full"
        ) from None
