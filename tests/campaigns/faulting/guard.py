"""How a server and its clients authenticate: not at all, or by TLS and a token.

`serving` is for the command `serve`. The rest is for clients.
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
    credentials: Credentials = NONE
    verifying: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


# Whoever reaches the port may do all.
OPEN = Guard()


def guarded(folder: Path, host: str) -> Guard:
    """Make a certificate for `host`, and a token that may do everything, in `folder`."""
    authority = trustme.CA()
    made = authority.issue_cert(host)
    certificate, key, ca = (folder / name for name in ("server.pem", "server.key", "ca.pem"))
    made.cert_chain_pems[0].write_to_path(certificate)
    made.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    entry, token = issued("campaign", scopes(["read,write,session,exec,admin:*"]), datetime.now(UTC))
    tokens = folder / "tokens.json"
    tokens.touch(0o600)
    tokens.write_bytes(Book((entry,)).encode())
    return Guard(
        "grpc+tls",
        ("--tls-cert", str(certificate), "--tls-key", str(key), "--tokens", str(tokens)),
        Credentials(token, ca.read_bytes()),
        ssl.create_default_context(cafile=ca),
        {"authorization": f"Bearer {token}"},
    )
