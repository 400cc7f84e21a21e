"""What a server proves itself with, and what it wants of its clients."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM: the server's certificate with those that it was issued by, and its key.

    With `client_ca`, only clients that have a certificate issued by one of its own come as far as a call.
    """

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None
