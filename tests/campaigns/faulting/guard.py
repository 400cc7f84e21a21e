"""How a server and its clients authenticate: not at all, or by TLS and a token.

`serving` is for the command `serve`, and `asking` for the commands that ask a server. The rest is for programs.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import trustme

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.client.credentials import NONE, Credentials

# What a handshake carries either way before anything else does, about.
HELLO_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Guard:
    """`scheme` is Flight's; `verifying` is for HTTPS, and None where it is HTTP."""

    scheme: str = "grpc"
    serving: tuple[str, ...] = ()
    asking: tuple[str, ...] = ()
    credentials: Credentials = NONE
    verifying: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


# Whoever reaches the port may do all.
OPEN = Guard()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate and key, and the CA that signed it: files in PEM."""

    certificate: Path
    key: Path
    ca: Path


def certified(folder: Path, host: str) -> Certificate:
    """Make a certificate for `host`, with a new CA, in `folder`."""
    authority = trustme.CA()
    made = authority.issue_cert(host)
    files = Certificate(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    made.cert_chain_pems[0].write_to_path(files.certificate)
    made.private_key_pem.write_to_path(files.key)
    authority.cert_pem.write_to_path(files.ca)
    return files


def guarded(folder: Path, host: str) -> Guard:
    """Make a certificate for `host`, and a token that may do everything, in `folder`."""
    files = certified(folder, host)
    entry, token = issued("campaign", scopes(["read,write,session,exec,admin:*"]), datetime.now(UTC))
    tokens, shown = folder / "tokens.json", folder / "token"
    for file, content in ((tokens, Book((entry,)).encode()), (shown, token.encode())):
        file.touch(0o600)
        file.write_bytes(content)
    return Guard(
        "grpc+tls",
        ("--tls-cert", str(files.certificate), "--tls-key", str(files.key), "--tokens", str(tokens)),
        ("--tls-ca", str(files.ca), "--token-file", str(shown)),
        Credentials(token, files.ca.read_bytes()),
        ssl.create_default_context(cafile=files.ca),
        {"authorization": f"Bearer {token}"},
    )
