"""Settings of a cluster: the NATS servers, how to authenticate there, and which server can own which device.

In a fleet file, which all servers of a cluster share, and where paths are relative to the file::

    [cluster]
    fleet = "plant"                      # any name; one NATS account serves one fleet
    credentials = "server.creds"         # or nkey = "server.nk", nats_token_file, or user with password_file
    ca = "nats-ca.pem"                   # for tls:// URLs; cert and key if NATS wants a certificate of clients
    token_file = "cluster.token"         # with [auth]: a token with all scopes, by which servers ask each other
    server_ca = "ca.pem"                 # with [tls]: the CA of the servers' certificates

    [devices.press]
    url = "serial:///dev/ttyACM0"
    servers = ["alpha"]                  # the only server with this cable

The variables of `VARIABLES` name files that replace those of the fleet file, and `FASTFLIGHT_NATS_USER` the user. No
password is ever an option, because other users of the computer can read the options of a process.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from fastflight.access.identity import EVERY
from fastflight.access.tokens import matching
from fastflight.app.access_settings import AccessSettings, resolve_path
from fastflight.app.token_file import book
from fastflight.cluster.lease import TTL_SECONDS
from fastflight.errors import RequestError
from fastflight.service.requests import Verb
from fastflight.transport.url import scheme_of

# The owner of a device sees this token, whoever has made the request.
TOKEN_COMMAND = (
    f"fastflight token add cluster --scope '{','.join(Verb)}:{EVERY}' --file tokens.json --out cluster.token"
)
EXAMPLE = 'As in [cluster] fleet = "plant"'
URL_EXAMPLE = "As in --cluster nats://127.0.0.1:4222, or several, separated by commas"
SCHEMES = ("nats", "tls")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
# Boards that every server reaches over the network, and the simulated one, which every server can start.
SHARED_SCHEMES = ("socket:", "rfc2217:", "ws:", "wss:", "sim:")
# More servers than a NATS cluster has.
MAX_SERVERS = 16
MAX_SECRET_BYTES = 64 * 1024
# Where NATS files are named in the environment.
VARIABLES: Mapping[str, str] = {
    "credentials": "FASTFLIGHT_NATS_CREDENTIALS",
    "nkey": "FASTFLIGHT_NATS_NKEY",
    "password_file": "FASTFLIGHT_NATS_PASSWORD_FILE",
    "nats_token_file": "FASTFLIGHT_NATS_TOKEN_FILE",
    "ca": "FASTFLIGHT_NATS_CA",
    "cert": "FASTFLIGHT_NATS_CERT",
    "key": "FASTFLIGHT_NATS_KEY",
    "token_file": "FASTFLIGHT_CLUSTER_TOKEN_FILE",
}


class FleetCluster(BaseModel):
    """The table `[cluster]` of a fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    fleet: str = "fleet"
    credentials: str | None = None
    nkey: str | None = None
    user: str | None = None
    password_file: str | None = None
    nats_token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token_file: str | None = None
    server_ca: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A server's place in a cluster. `name` is its own, `servers` are URLs of NATS, and `token` is for other servers.

    `location` is the address at which other servers reach this one; empty for the one that it listens on. `unreachable`
    are the devices that only other servers have, `local` those that only this one has.
    """

    servers: tuple[str, ...]
    name: str
    fleet: str = "fleet"
    location: str = ""
    credentials: Path | None = None
    nkey: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    nats_token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)
    server_ca: bytes | None = None
    unreachable: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    # How long a lease lives without being renewed. The same on all servers.
    ttl: float = TTL_SECONDS


def cluster_settings(
    url: str,
    table: FleetCluster | None,
    folder: Path,
    environment: Mapping[str, str],
    *,
    name: str | None,
    listening: str,
    location: str | None,
    access: AccessSettings,
    urls: Mapping[str, str],
    owners: Mapping[str, Sequence[str]],
) -> ClusterSettings:
    """Return the settings for `--cluster URL`. `RequestError` names the option or key that is wrong.

    `folder` is that of the fleet file, `owners` has the `servers` of its devices, and `urls` all devices of this one.
    """
    table = table or FleetCluster()
    own = urlsplit(listening)
    name = name or f"{socket.gethostname().partition('.')[0]}-{own.port}"
    if not NAME.fullmatch(name):
        raise RequestError(f"{name!r} is no server's name", where="--cluster-name", hint="Use letters, digits, _ . -")
    if location is None and own.hostname in ("0.0.0.0", "::"):  # noqa: S104  # compared, not listened on
        raise RequestError(
            "other servers cannot connect to this address",
            where=listening,
            hint="Give the address by which they reach this server: --cluster-location grpc+tls://alpha.example.org:8815",
        )
    files = {key: environment.get(variable) or getattr(table, key) for key, variable in VARIABLES.items()}
    files["server_ca"] = table.server_ca
    paths = {key: resolve_path(folder, value, f"cluster.{key}") for key, value in files.items() if value is not None}
    user = environment.get("FASTFLIGHT_NATS_USER") or table.user
    if (user is None) != ("password_file" not in paths):
        raise RequestError("a user and a password go together", where="[cluster]", hint="Give user and password_file")
    if access.tokens is not None and "token_file" not in paths:
        raise RequestError(
            "servers with tokens ask each other with a token",
            where="[cluster]",
            hint=f"Name the file that `{TOKEN_COMMAND}` writes: token_file",
        )
    token = _secret(paths.get("token_file"))
    if access.tokens is not None and token is not None:
        _check_token(access.tokens, token, paths["token_file"])
    unreachable, local = _places(name, urls, owners)
    return ClusterSettings(
        _servers(url),
        name,
        table.fleet,
        location or "",
        credentials=paths.get("credentials"),
        nkey=paths.get("nkey"),
        user=user,
        password=_secret(paths.get("password_file")),
        nats_token=_secret(paths.get("nats_token_file")),
        ca=paths.get("ca"),
        cert=paths.get("cert"),
        key=paths.get("key"),
        token=token,
        server_ca=None if "server_ca" not in paths else _read(paths["server_ca"]),
        unreachable=unreachable,
        local=local,
    )


def _check_token(tokens: Path, token: str, file: Path) -> None:
    """Raise `RequestError` unless the token grants everything: with it, a server passes on requests of every kind."""
    entry = matching({each.id: each for each in book(tokens).tokens}, token)
    if entry is None:
        raise RequestError(f"this token is not in {tokens}", where=str(file), hint=f"Make one: `{TOKEN_COMMAND}`")
    granted = {verb for scope in entry.scopes if scope.devices == EVERY for verb in scope.verbs}
    if missing := [verb for verb in Verb if verb not in granted]:
        raise RequestError(
            f"servers ask each other with this token, and it does not grant {', '.join(missing)} on all devices",
            where=str(file),
            hint=f"Make another one: `{TOKEN_COMMAND}`",
        )


def _servers(url: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in url.split(",") if part.strip())
    if not 0 < len(servers) <= MAX_SERVERS:
        raise RequestError("no address of NATS", where="--cluster", hint=URL_EXAMPLE)
    for server in servers:
        try:
            parts = urlsplit(server)
            valid = parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port or 4222) > 0
        except ValueError:
            valid = False
        if valid and ("@" in parts.netloc):
            raise RequestError(
                "other users can read a password in the options of a process",
                where="--cluster",
                hint="Write user and password_file, credentials or nkey into [cluster] of the fleet file",
            )
        if not valid:
            raise RequestError(f"not an address of NATS: {server!r}", where="--cluster", hint=URL_EXAMPLE)
    return servers


def _places(
    name: str, urls: Mapping[str, str], owners: Mapping[str, Sequence[str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the devices that this server cannot own, and those that only it can own."""
    unreachable, local = set(), set()
    for device, url in urls.items():
        scheme = scheme_of(url)
        named = list(owners[device]) if device in owners else None
        if named == [] and scheme not in SHARED_SCHEMES:
            raise RequestError(
                f"a board at {scheme} is at one computer, and the fleet file is for all servers",
                where=f"devices.{device}",
                hint=f'Name the server with the board: servers = ["{name}"]',
            )
        if named and name not in named:
            unreachable.add(device)
        elif named == [name] or (named is None and scheme not in SHARED_SCHEMES):
            local.add(device)
    return frozenset(unreachable), frozenset(local)


def _secret(path: Path | None) -> str | None:
    if path is None:
        return None
    secret = _read(path).decode(errors="replace").strip()
    if not secret:
        raise RequestError("it is empty", where=str(path), hint="Write the secret into it, in a line of its own")
    return secret


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SECRET_BYTES)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path), hint=EXAMPLE) from error
