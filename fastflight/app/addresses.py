"""Where a server may listen: other computers reach it only with TLS and tokens. Wrong addresses are `RequestError`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from fastflight.client.answers import DEFAULT_LOCATION
from fastflight.errors import RequestError
from fastflight.transport.url_parts import is_loopback

PLAIN = ("grpc", "grpc+tcp")
ENCRYPTED = "grpc+tls"
LOOPBACK = "127.0.0.1"
MAX_PORT = 65535
MAX_PORT_DIGITS = 5
# Host and port of an origin, in lower case as browsers send it.
ORIGIN_HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
# A host name as in a Host header, without the port.
HOST = re.compile(r"[A-Za-z0-9_.:-]{1,255}")
MAKE_FILES = (
    "`fastflight cert server NAME` and `fastflight token add NAME --scope read:*` make the files. "
    "Or listen on 127.0.0.1, and use a tunnel (ssh -L) from elsewhere"
)
NOT_ENCRYPTED = (
    "There is no encryption and no login here: whoever reaches the port owns the boards. "
    "Use 127.0.0.1, and a tunnel (ssh -L) from elsewhere"
)


def check_location(location: str, *, tls: bool, tokens: bool) -> None:
    """Check the URL of a Flight server that has a certificate (`tls`) and a token file (`tokens`), or not."""
    hint = f"Give one as {DEFAULT_LOCATION}"
    try:
        parts = urlsplit(location)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise RequestError(f"not an address: {error}", where=location, hint=hint) from error
    if parts.scheme not in (*PLAIN, ENCRYPTED) or not host or port is None or parts.path.strip("/"):
        raise RequestError("not an address of a server", where=location, hint=hint)
    encrypted = parts.scheme == ENCRYPTED
    if not is_loopback(host) and not (encrypted and tls and tokens):
        raise RequestError(
            "other computers can connect only with TLS and tokens",
            where=location,
            hint=f"Give {fix(parts.netloc)}; {MAKE_FILES}",
        )
    if encrypted and not tls:
        raise RequestError(
            "TLS takes a certificate",
            where=location,
            hint="Give --tls-cert FILE --tls-key FILE; `fastflight cert server NAME` makes them",
        )
    if tls and not encrypted:
        raise RequestError("there is a certificate, and no TLS", where=location, hint=f"{ENCRYPTED}://{parts.netloc}")


def fix(netloc: str) -> str:
    """The options that `serve` needs to listen at `netloc` for other computers."""
    return f"--server {ENCRYPTED}://{netloc} --tls-cert server.pem --tls-key server.key --tokens tokens.json"


def check_host(host: str) -> None:
    """Check the address of a bridge: it has no access control, so it is for this computer alone."""
    if not is_loopback(host):
        raise RequestError("only this computer's own addresses can be bridged to", where=host, hint=NOT_ENCRYPTED)


def http_address(text: str, *, guarded: bool = False) -> tuple[str, int]:
    """Return host and port of `PORT` or `HOST:PORT`. `guarded`: the gateway has TLS and tokens."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    is_port = port.isascii() and port.isdigit() and len(port) <= MAX_PORT_DIGITS and int(port) <= MAX_PORT
    if not is_port or not host or "/" in host:
        raise RequestError(
            "not an address", where=f"--http {text[:100]}", hint="Give a port or HOST:PORT, as in --http 8000"
        )
    if not guarded and not is_loopback(host):
        raise RequestError(
            "other computers can connect only with TLS and tokens",
            where=f"--http {text[:100]}",
            hint=f"Give --http {text[:100]} --http-host NAME {fix(f'{LOOPBACK}:8815')}; {MAKE_FILES}",
        )
    return host, int(port)


def http_hosts(names: Sequence[str], address: tuple[str, int] | None) -> tuple[str, ...]:
    """Return the host names that the gateway at `address` answers to, beside its loopback names.

    A gateway that listens on every address needs one.
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
    """Return the origins, as `https://example.org:8443`, if browsers would send each of them."""
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
