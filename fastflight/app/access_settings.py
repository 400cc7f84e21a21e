"""Settings of tokens and TLS, and which addresses a server may listen on with them.

In a fleet file, where unknown keys are errors and paths are relative to the file::

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

# A certificate chain has some kilobytes, a bundle of CAs some hundred.
MAX_PEM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and, if clients need certificates, the CA that signs them."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The token file and the TLS files. Without `tokens`, everybody who reaches the port may do everything."""

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
    fleet_folder: Path | None,
    *,
    tokens: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
) -> AccessSettings:
    """Combine the tables of a fleet file, which is in `fleet_folder`, with options; an option wins."""
    folder = fleet_folder or Path()

    def chosen(option: Path | None, in_file: str | None) -> Path | None:
        return option if option is not None or in_file is None else resolve_path(folder, in_file, "auth or tls")

    tokens = chosen(tokens, None if auth is None else auth.tokens)
    cert = chosen(cert, None if tls is None else tls.cert)
    key = chosen(key, None if tls is None else tls.key)
    client_ca = chosen(client_ca, None if tls is None else tls.client_ca)
    if cert is None and key is None:
        if client_ca is not None:
            raise RequestError(
                "clients show certificates over TLS alone", where="--client-ca", hint="Give --tls-cert and --tls-key"
            )
        return AccessSettings(tokens)
    if cert is None or key is None:
        raise RequestError(
            "a certificate and its key go together", where="--tls-cert, --tls-key", hint="Give both files"
        )
    if client_ca is not None and tokens is None:
        raise RequestError(
            "nothing says what a certificate grants",
            where="--client-ca",
            hint="Give --tokens FILE, made by `fastflight token add NAME --certificate --scope read:*`",
        )
    return AccessSettings(tokens, TlsFiles(cert, key, client_ca))


def check_location(location: str, access: AccessSettings, example: str) -> None:
    """Raise `RequestError` for what is no address, and for one that other computers reach without TLS and tokens."""
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
            "other computers can connect only with TLS and tokens",
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
    """The options that `serve` needs to listen at `netloc` for other computers."""
    return f"--server {ENCRYPTED}://{netloc} --tls-cert server.pem --tls-key server.key --tokens tokens.json"


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a loopback address. Other names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def resolve_path(folder: Path, path: str, where: str) -> Path:
    """Resolve a path of a fleet file: `~` is a home directory, and a relative path is relative to `folder`.

    `RequestError` for the home of an unknown user.
    """
    try:
        return folder / Path(path).expanduser()
    except RuntimeError:
        raise RequestError(
            f"no user here has the home of {path[:80]!r}", where=where, hint="Write the path in full"
        ) from None


def read_pem(path: Path) -> bytes:
    """Read a PEM file. `RequestError` if it cannot be read or is no PEM."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    if len(content) > MAX_PEM_BYTES or b"-----BEGIN " not in content:
        raise RequestError("not a PEM file", where=str(path), hint="It begins with -----BEGIN")
    return content
