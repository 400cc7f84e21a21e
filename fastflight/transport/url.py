"""Parses device URLs: `parse_url` turns the text of a user into an `Address`.

`serial:///dev/ttyACM0?baud=115200` (a bare `/dev/ttyACM0` or `COM7` means the same; `serial:?serial_number=E66141`
finds a port by its identity, under any system name), `socket://host:port` (`?baud=115200`), `rfc2217://host:port`
(`?baud=115200&dtr=0&rts=0`), `ws://host:8266` and `wss://host:443` (a board's WebREPL; `?password_file=FILE` or
`?password_env=NAME`), `exec:COMMAND` (`?cwd=DIR`),
`sim:` (`?files=DIR&baud=115200&ring=512&telemetry=10`).

Every URL may have the option `kind`: `?kind=lines` is a device that only prints lines, and to which nothing is sent.

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
from fastflight.transport.url_parts import COM_PORT, EXAMPLES, bad

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
# The options that end a command.
OF_COMMAND = ("cwd=", "kind=")
# The values of the option `kind`, which every URL may have.
LINES, MICROPYTHON = KINDS = ("lines", "micropython")
# The kind of a device that has not shown what it is.
UNKNOWN_KIND = "unknown"
# What these schemes reach is a MicroPython board, unless the URL says otherwise.
ONLY_MICROPYTHON = ("sim", "ws", "wss")
# Enough for a command with a long list of arguments.
MAX_URL_CHARACTERS = 2048


def parse_url(url: str) -> Address:
    """Return the address for `url`. `RequestError` names the part that is wrong and what is allowed."""
    if len(url) > MAX_URL_CHARACTERS:
        raise RequestError(
            f"{len(url)} characters are too many: {MAX_URL_CHARACTERS} are allowed",
            where=f"device URL {public_url(url[:MAX_URL_CHARACTERS])[:40]!r}...",
        )
    url = _with_scheme(url)
    shown = public_url(url)
    url, kinds = _without_kinds(url)
    if len(kinds) > 1:
        raise bad(shown, "option 'kind' is given twice")
    if kinds and kinds[0] not in KINDS:
        raise RequestError(f"unknown kind {kinds[0]!r}", where=f"device URL {shown!r}", hint=nearest(kinds[0], KINDS))
    if url.startswith("/") or COM_PORT.fullmatch(url):
        port: Address = _module("serial").SerialAddress(url, url)
        return port
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in MODULES:
        raise RequestError(
            f"unknown kind of device {scheme!r}",
            where=f"device URL {shown!r}",
            hint=f"{nearest(scheme, MODULES)}. E.g. {EXAMPLES}",
        )
    address: Address = _module(scheme).parse(shown, rest)
    return address


def kind_of(url: str) -> str:
    """Return what a valid URL says of its device, one of `KINDS`; `UNKNOWN_KIND` if it says nothing."""
    known = MICROPYTHON if url.partition(":")[0] in ONLY_MICROPYTHON else UNKNOWN_KIND
    return next(iter(_without_kinds(url)[1]), known)


def _with_scheme(url: str) -> str:
    """Return the URL, with a scheme if it is the bare name of a port with options."""
    name, options, _ = url.partition("?")
    return f"serial://{url}" if options and (name.startswith("/") or COM_PORT.fullmatch(name)) else url


def _without_kinds(url: str) -> tuple[str, list[str]]:
    """Return the URL without its options `kind`, and their values. A valid URL has at most one."""
    place, mark, query = url.rpartition("?")
    if not mark or (url.startswith("exec:") and not query.startswith(OF_COMMAND)):
        return url, []
    options = query.split("&")
    rest = "&".join(each for each in options if not each.startswith("kind="))
    kinds = [each.removeprefix("kind=") for each in options if each.startswith("kind=")]
    return (f"{place}{'?' if rest else ''}{rest}", kinds) if kinds else (url, [])


def public_url(url: str) -> str:
    """Return the public part of a URL: where the device is, and the settings of its line.

    For a command only the name of its program (`exec:micropython`). No folders, user names, passwords or unknown
    options. Works for URLs that `parse_url` refuses, too.
    """
    scheme, colon, rest = _with_scheme(url).partition(":")
    if scheme == "exec":
        kind = kind_of(url)
        command, _, query = rest.rpartition("?")
        shown = _program(command if query.startswith(OF_COMMAND) else rest)
        return f"exec:{shown}" + f"?kind={kind}" * (kind in KINDS)
    if scheme not in MODULES:
        return url if url.startswith("/") or not colon else f"{scheme}:..."
    place, _, query = rest.partition("?")
    slashes = "//" if place.startswith("//") and scheme != "serial" else ""
    place = slashes + place.removeprefix(slashes).rpartition("@")[2] if slashes else place
    public = ("kind", *_module(scheme).SHOWN)
    kept = "&".join(each for each in query.split("&") if each.partition("=")[0] in public)
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
