"""Settings of the HTTP gateway: its address, its host names, and the origins of pages that may send requests."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from fastflight.app.access_settings import OPEN, AccessSettings, is_loopback
from fastflight.errors import RequestError

DEFAULT_HOST = "127.0.0.1"
MAX_PORT = 65535
MAX_PORT_DIGITS = 5
# Host and port of an origin, in lower case as browsers send it.
ORIGIN_HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
# A host name as in a Host header, without the port.
HOST = re.compile(r"[A-Za-z0-9_.:-]{1,255}")


def http_address(text: str, access: AccessSettings = OPEN) -> tuple[str, int]:
    """Return host and port of `PORT` or `HOST:PORT`.

    `RequestError` if it is neither, or other computers could reach it without TLS and tokens.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else DEFAULT_HOST
    is_port = port.isascii() and port.isdigit() and len(port) <= MAX_PORT_DIGITS and int(port) <= MAX_PORT
    if not is_port or not host or "/" in host:
        raise RequestError(
            "not an address", where=f"--http {text[:100]}", hint="Give a port or HOST:PORT, as in --http 8000"
        )
    if not is_loopback(host) and (access.tls is None or access.tokens is None):
        raise RequestError(
            "other computers can connect only with TLS and tokens",
            where=f"--http {text[:100]}",
            hint=f"Give --http {text[:100]} --http-host NAME --server grpc+tls://{DEFAULT_HOST}:8815 --tls-cert "
            "server.pem --tls-key server.key --tokens tokens.json; `fastflight cert server NAME` and `fastflight token "
            "add NAME --scope read:*` make the files. Or listen on 127.0.0.1, and use a tunnel (ssh -L) from elsewhere",
        )
    return host, int(port)


def http_hosts(names: Sequence[str], address: tuple[str, int] | None) -> tuple[str, ...]:
    """Return the host names that the gateway at `address` answers to, beside its loopback names.

    `RequestError` for what is no host name, and where the gateway listens on every address and has no name.
    """
    for name in names:
        if not HOST.fullmatch(name):
            raise RequestError("not a host's name", where=f"--http-host {name[:100]}", hint="Give it without a port")
    if address is None or is_loopback(address[0]):
        return tuple(names)
    if not _is_every(address[0]):
        return (*names, address[0])
    if not names:
        raise RequestError(
            "nobody elsewhere could ask for it",
            where=f"--http {address[0]}:{address[1]}",
            hint="Give --http-host NAME, the name or address by which it is reached",
        )
    return tuple(names)


def http_origins(texts: Sequence[str]) -> tuple[str, ...]:
    """Check origins, as `https://example.org:8443`. `RequestError` for one that no browser would send."""
    for text in texts:
        scheme, _, host = text.partition("://")
        if scheme not in ("http", "https") or not ORIGIN_HOST.fullmatch(host):
            raise RequestError(
                "not an origin",
                where=f"--http-origin {text[:100]}",
                hint="Give what a page's address begins with, as in http://localhost:5173",
            )
    return tuple(texts)


def _is_every(host: str) -> bool:
    """Whether `host` stands for all addresses of this computer, as 0.0.0.0 does."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
