"""Reads the parts of a device URL, for the transports: each has a function `parse` for the URLs of its kind.

Functions on URLs take the public URL, which is all that an error contains, and raise `RequestError`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from fastflight.errors import RequestError, nearest

Options = list[tuple[str, str]]

EXAMPLES = (
    "serial:///dev/ttyACM0?baud=115200, socket://host:2218, rfc2217://host:2217, ws://host:8266, exec:micropython, sim:"
)
# The most digits of a number in a URL: Python refuses to convert thousands of digits.
MAX_DIGITS = 18
# 0 makes a terminal hang up. The fastest adapters reach 12 Mbaud, so a larger number is a typing error.
BAUD_LIMITS = (1, 100_000_000)
# The names of serial ports on Windows.
COM_PORT = re.compile(r"COM\d+", re.IGNORECASE)


def endpoint(url: str, rest: str) -> tuple[str, int]:
    """Return the host and the port."""
    if "@" in rest.partition("?")[0]:
        raise bad(url, "user names and passwords are not supported: leave them out")
    try:
        parts = urlsplit(f"socket:{rest}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise bad(url, str(error)) from error
    if not host or not port:
        raise bad(url, "host and port are both needed")
    if parts.path:
        raise bad(url, "only options may follow the port")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise bad(url, "the host name is not valid") from error
    return host, port


def path(rest: str) -> str:
    """Return what is before the question mark."""
    return unquote(rest.partition("?")[0])


def options(url: str, rest: str, known: tuple[str, ...], lists: tuple[str, ...] = ()) -> Options:
    """Parse the options after the question mark. `lists` are the options that may be repeated."""
    query = rest.partition("?")[2]
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=64)
    except ValueError as error:
        raise bad(url, "cannot read the options: they are NAME=VALUE, with & between them") from error
    seen: set[str] = set()
    for name, _ in pairs:
        if name not in known:
            raise RequestError(
                f"unknown option {name!r}", where=f"device URL {url!r}", hint=nearest(name, (*known, "kind"))
            )
        if name in seen and name not in lists:
            raise bad(url, f"option {name!r} is given twice")
        seen.add(name)
    return pairs


def number(url: str, name: str, value: str) -> int:
    """Return the whole number that is the value of the option `name`."""
    if not value.isascii() or not value.isdigit() or len(value) > MAX_DIGITS:
        raise bad(url, f"{name} must be a whole number, not {value!r}")
    return int(value)


def between(url: str, name: str, value: str, least: int, most: int) -> int:
    """As `number`, which must be from `least` to `most`."""
    found = number(url, name, value)
    if not least <= found <= most:
        raise bad(url, f"{name} must be from {least} to {most}, not {found}")
    return found


def baud(url: str, options: Mapping[str, str]) -> int | None:
    """Return the option `baud`; None if it is not given."""
    return between(url, "baud", options["baud"], *BAUD_LIMITS) if "baud" in options else None


def flag(url: str, name: str, value: str | None) -> bool | None:
    """Return whether the option `name` is 1; None if it is not given."""
    if value is None:
        return None
    if value not in ("0", "1"):
        raise bad(url, f"{name} must be 0 or 1, not {value!r}")
    return value == "1"


def bad(url: str, what: str) -> RequestError:
    """Return the error for a URL in which something is wrong."""
    return RequestError(what, where=f"device URL {url!r}", hint=f"Write it like one of: {EXAMPLES}")


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a loopback address. Other names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
