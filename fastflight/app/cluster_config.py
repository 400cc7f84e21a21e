"""Makes the settings of a server in a cluster, for `--cluster URL` and the table `cluster` of the fleet file.

All servers of a cluster share the fleet file. The variables of `VARIABLES` replace its keys. No password is ever an
option, because other users of the computer can read the options of a process.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fastflight.access.identity import EVERY
from fastflight.access.tokens import matching
from fastflight.app.config import ClusterSettings, ClusterTable, DeviceTable, FleetFile
from fastflight.app.fleet_file import EXAMPLES
from fastflight.app.key_files import read_pem, read_secret
from fastflight.app.token_file import book
from fastflight.errors import RequestError
from fastflight.service.requests import Verb
from fastflight.transport.url import scheme_of

# The owner of a device sees this token, whoever has made the request.
TOKEN_COMMAND = (
    f"fastflight token add cluster --scope '{','.join(Verb)}:{EVERY}' --file tokens.json --out cluster.token"
)
URL_EXAMPLE = "As in --cluster nats://127.0.0.1:4222, or several, separated by commas"
SCHEMES = ("nats", "tls")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
# Boards that every server reaches over the network, and the simulated one, which every server can start.
SHARED_SCHEMES = ("socket:", "rfc2217:", "ws:", "wss:", "sim:")
# More servers than a NATS cluster has.
MAX_SERVERS = 16
# What stands in the environment for keys of `ClusterTable`.
VARIABLES: Mapping[str, str] = {
    "credentials": "FASTFLIGHT_NATS_CREDENTIALS",
    "nkey": "FASTFLIGHT_NATS_NKEY",
    "user": "FASTFLIGHT_NATS_USER",
    "password_file": "FASTFLIGHT_NATS_PASSWORD_FILE",
    "nats_token_file": "FASTFLIGHT_NATS_TOKEN_FILE",
    "ca": "FASTFLIGHT_NATS_CA",
    "cert": "FASTFLIGHT_NATS_CERT",
    "key": "FASTFLIGHT_NATS_KEY",
    "token_file": "FASTFLIGHT_CLUSTER_TOKEN_FILE",
}


def cluster_settings(
    url: str,
    file: FleetFile,
    devices: Mapping[str, DeviceTable],
    *,
    name: str | None,
    listening: str,
    location: str | None,
) -> ClusterSettings:
    """Return the settings for `--cluster URL`. `RequestError` names the option or key that is wrong.

    `file` has the values of `VARIABLES`. `devices` has all devices of this server, of the file and of `--device`.
    """
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
    table, tokens = file.cluster or ClusterTable(), None if file.auth is None else file.auth.tokens
    if (table.user is None) != (table.password_file is None):
        raise RequestError("a user and a password go together", where="[cluster]", hint="Give user and password_file")
    if tokens is not None and table.token_file is None:
        raise RequestError(
            "servers with tokens ask each other with a token",
            where="[cluster]",
            hint=f"Name the file that `{TOKEN_COMMAND}` writes: token_file",
        )
    token = _secret(table.token_file)
    if tokens is not None and token is not None:
        _check_token(tokens, token, str(table.token_file))
    unreachable, local = _places(name, devices, file.devices)
    return ClusterSettings(
        **dict(table),
        servers=_servers(url),
        name=name,
        location=location or "",
        password=_secret(table.password_file),
        nats_token=_secret(table.nats_token_file),
        token=token,
        server_ca_pem=None if table.server_ca is None else read_pem(table.server_ca),
        unreachable=unreachable,
        local=local,
    )


def _check_token(tokens: Path, token: str, where: str) -> None:
    """Raise `RequestError` unless the token grants everything: with it, a server passes on requests of every kind."""
    entry = matching({each.id: each for each in book(tokens).tokens}, token)
    if entry is None:
        raise RequestError(f"this token is not in {tokens}", where=where, hint=f"Make one: `{TOKEN_COMMAND}`")
    granted = {verb for scope in entry.scopes if scope.devices == EVERY for verb in scope.verbs}
    if missing := [verb for verb in Verb if verb not in granted]:
        raise RequestError(
            f"servers ask each other with this token, and it does not grant {', '.join(missing)} on all devices",
            where=where,
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
    name: str, devices: Mapping[str, DeviceTable], in_file: Mapping[str, DeviceTable]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the devices that this server cannot own, and those that only it can own."""
    unreachable, local = set(), set()
    for device, table in devices.items():
        scheme = scheme_of(table.url)
        is_private = scheme not in SHARED_SCHEMES
        if device in in_file and not table.servers and is_private:
            raise RequestError(
                f"a board at {scheme} is at one computer, and the fleet file is for all servers",
                where=f"devices.{device}",
                hint=f'Name the server with the board: servers = ["{name}"]',
            )
        if table.servers and name not in table.servers:
            unreachable.add(device)
        elif table.servers == [name] or (device not in in_file and is_private):
            local.add(device)
    return frozenset(unreachable), frozenset(local)


def _secret(path: Path | None) -> str | None:
    return None if path is None else read_secret(path, EXAMPLES["cluster"])
