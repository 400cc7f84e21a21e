"""Parses device URLs: `parse_url` turns the text of a user into an `Address`.

`serial:///dev/ttyACM0?baud=115200` (a bare `/dev/ttyACM0` or `COM7` means the same; `serial:?serial_number=E66141`
finds a port by its identity, under any system name), `socket://host:port` (`?baud=115200`), `rfc2217://host:port`
(`?baud=115200&dtr=0&rts=0`), `ws://host:8266` and `wss://host:443` (a board's WebREPL; `?password_file=FILE` or
`?password_env=NAME`), `exec:COMMAND` (`?cwd=DIR`),
`sim:` (`?files=DIR&baud=115200&ring=512&telemetry=10`).

`Address.url` is only the public part of the URL (`public_url`), so errors, logs and answers contain no more. It leaves
out a command's arguments, which may be secrets, and folders of this host. URLs with user names and passwords are
refused.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from typing import Any

from fastflight.errors import RequestError, nearest
from fastflight.transport.port import Address
from fastflight.transport.url_parts import COM_PORT, EXAMPLES

# The module of each kind of device. It has the function `parse` and, but for commands, `SHOWN`: the options that
# `public_url` keeps. A process imports only the kinds that it uses: some are long.
MODULES: Mapping[str, str] = {
    "serial": "serial",
    "socket": "socket",
    "rfc2217": "rfc2217",
    "ws": "webrepl",
    "wss": "webrepl",
    "exec": "exec",
    "sim": "sim",
}
# Enough for a command with a long list of arguments.
MAX_URL_CHARACTERS = 2048


def parse_url(url: str) -> Address:
    """Return the address for `url`. `RequestError` names the part that is wrong and what is allowed."""
    if len(url) > MAX_URL_CHARACTERS:
        raise RequestError(
            f"{len(url)} characters are too many: {MAX_URL_CHARACTERS} are allowed",
            where=f"device URL {public_url(url[:MAX_URL_CHARACTERS])[:40]!r}...",
        )
    if url.startswith("/") or COM_PORT.fullmatch(url):
        port: Address = _module("serial").SerialAddress(url, url)
        return port
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in MODULES:
        raise RequestError(
            f"unknown kind of device {scheme!r}",
            where=f"device URL {public_url(url)!r}",
            hint=f"{nearest(scheme, MODULES)}. E.g. {EXAMPLES}",
        )
    address: Address = _module(scheme).parse(public_url(url), rest)
    return address


def public_url(url: str) -> str:
    """Return the public part of a URL: where the device is, and the settings of its line.

    For a command only the name of its program (`exec:micropython`). No folders, user names, passwords or unknown
    options. Works for URLs that `parse_url` refuses, too.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "exec":
        return f"exec:{_program(rest)}"
    if scheme not in MODULES:
        return url if url.startswith("/") or not colon else f"{scheme}:..."
    place, _, query = rest.partition("?")
    slashes = "//" if place.startswith("//") and scheme != "serial" else ""
    place = slashes + place.removeprefix(slashes).rpartition("@")[2] if slashes else place
    kept = "&".join(each for each in query.split("&") if each.partition("=")[0] in _module(scheme).SHOWN)
    return f"{scheme}:{place}{'?' if kept else ''}{kept}"


def _program(command: str) -> str:
    """Return the name of the program of a command, without its folder."""
    try:
        first = next(iter(shlex.split(command)), "")
    except ValueError:  # an unclosed quotation mark
        first = next(iter(command.split()), "")
    return first.partition("=")[0].rpartition("/")[2]


def scheme_of(url: str) -> str:
    """Return the scheme of a valid URL, such as `serial:`: the part that everybody may see."""
    scheme, _, _ = url.partition(":")
    return f"{scheme if scheme in MODULES else 'serial'}:"


def _module(scheme: str) -> Any:
    return importlib.import_module(f"fastflight.transport.{MODULES[scheme]}")
