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

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from fastflight.errors import RequestError, nearest
from fastflight.transport.exec import ExecAddress
from fastflight.transport.identity import Identity
from fastflight.transport.pacing import DEFAULT, LIMITS, Pacing
from fastflight.transport.port import Address
from fastflight.transport.rfc2217 import Rfc2217Address
from fastflight.transport.serial import DEFAULT_BAUD, SerialAddress
from fastflight.transport.sim import SimAddress
from fastflight.transport.socket import SocketAddress
from fastflight.transport.webrepl import PASSWORD_ENV, PASSWORD_FILE, WebReplAddress

Options = list[tuple[str, str]]

EXAMPLES = (
    "serial:///dev/ttyACM0?baud=115200, socket://host:2218, rfc2217://host:2217, ws://host:8266, exec:micropython, sim:"
)
SERIAL_OPTIONS = ("baud", "dtr", "rts", "serial_number", "location", *LIMITS)
SOCKET_OPTIONS = ("baud",)
RFC2217_OPTIONS = ("baud", "dtr", "rts")
WEBREPL_OPTIONS = (PASSWORD_FILE, PASSWORD_ENV)
EXEC_OPTIONS = ("cwd",)
SIM_NUMBERS = ("baud", "ring", "hold", "capacity", "heap", "no-raw-paste", "no-interrupt", "soft-timers", "seed")
SIM_OPTIONS = ("files", "telemetry", "fault", "without", *SIM_NUMBERS)
# The options that may be repeated.
SIM_LISTS = ("fault", "without")
# The options that `public_url` keeps, by scheme: no folders.
SHOWN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "serial": SERIAL_OPTIONS,
    "socket": SOCKET_OPTIONS,
    "rfc2217": RFC2217_OPTIONS,
    "sim": tuple(name for name in SIM_OPTIONS if name != "files"),
}
# Enough for a command with a long list of arguments.
MAX_URL_CHARACTERS = 2048
# The most digits of a number in a URL: Python refuses to convert thousands of digits.
MAX_DIGITS = 18
# 0 makes a terminal hang up. The fastest adapters reach 12 Mbaud, so a larger number is a typing error.
BAUD_LIMITS = (1, 100_000_000)

_COM_PORT = re.compile(r"COM\d+", re.IGNORECASE)


def parse_url(url: str) -> Address:
    """Return the address for `url`. `RequestError` names the part that is wrong and what is allowed."""
    if len(url) > MAX_URL_CHARACTERS:
        raise RequestError(
            f"{len(url)} characters are too many: {MAX_URL_CHARACTERS} are allowed",
            where=f"device URL {public_url(url[:MAX_URL_CHARACTERS])[:40]!r}...",
        )
    if url.startswith("/") or _COM_PORT.fullmatch(url):
        return SerialAddress(url, url)
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise RequestError(
            f"unknown kind of device {scheme!r}",
            where=f"device URL {public_url(url)!r}",
            hint=f"{nearest(scheme, SCHEMES)}. E.g. {EXAMPLES}",
        )
    return SCHEMES[scheme](public_url(url), rest)


def public_url(url: str) -> str:
    """Return the public part of a URL: where the device is, and the settings of its line.

    For a command only the name of its program (`exec:micropython`). No folders, user names, passwords or unknown
    options. Works for URLs that `parse_url` refuses, too.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "exec":
        return f"exec:{_program(rest)}"
    if scheme not in SCHEMES:
        return url if url.startswith("/") or not colon else f"{scheme}:..."
    place, _, query = rest.partition("?")
    slashes = "//" if place.startswith("//") and scheme != "serial" else ""
    place = slashes + place.removeprefix(slashes).rpartition("@")[2] if slashes else place
    kept = "&".join(each for each in query.split("&") if each.partition("=")[0] in SHOWN_OPTIONS.get(scheme, ()))
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
    return f"{scheme if scheme in SCHEMES else 'serial'}:"


def _serial(url: str, rest: str) -> Address:
    path = _path(rest.removeprefix("//"))
    options = dict(_options(url, rest, SERIAL_OPTIONS))
    wanted = Identity(options.get("serial_number"), options.get("location"))
    identified = wanted != Identity()
    if path.strip("/") and identified:
        raise _bad(url, "the port is named twice: by its path, and by its serial number or location")
    if "" in (wanted.serial_number, wanted.location) or not (path.strip("/") or identified):
        raise _bad(url, "the port's name is missing")
    # On Windows the name has no slash of its own: serial:///COM7.
    name = path.lstrip("/") if _COM_PORT.fullmatch(path.lstrip("/")) else path
    return SerialAddress(
        url,
        "" if identified else name,
        _baud(url, options) or DEFAULT_BAUD,
        _flag(url, "dtr", options.get("dtr")),
        _flag(url, "rts", options.get("rts")),
        wanted if identified else None,
        _pacing(url, options),
    )


def _pacing(url: str, options: Mapping[str, str]) -> Pacing:
    sizes = {name: _between(url, name, options[name], *LIMITS[name]) for name in LIMITS if name in options}
    return replace(DEFAULT, **sizes)


def _socket(url: str, rest: str) -> Address:
    host, port = _endpoint(url, rest)
    return SocketAddress(url, host, port, _baud(url, dict(_options(url, rest, SOCKET_OPTIONS))))


def _rfc2217(url: str, rest: str) -> Address:
    host, port = _endpoint(url, rest)
    options = dict(_options(url, rest, RFC2217_OPTIONS))
    baud = _baud(url, options)
    dtr, rts = (_flag(url, name, options.get(name)) for name in ("dtr", "rts"))
    return Rfc2217Address(url, host, port, baud, dtr, rts)


def _webrepl(url: str, rest: str) -> Address:
    host, port = _endpoint(url, rest)
    options = dict(_options(url, rest, WEBREPL_OPTIONS))
    if "" in options.values() or len(options) > 1:
        raise _bad(url, f"one of {PASSWORD_FILE} and {PASSWORD_ENV} names where the password is")
    tls = url.startswith("wss:")
    return WebReplAddress(url, host, port, tls, options.get(PASSWORD_FILE), options.get(PASSWORD_ENV))


def _endpoint(url: str, rest: str) -> tuple[str, int]:
    if "@" in rest.partition("?")[0]:
        raise _bad(url, "user names and passwords are not supported: leave them out")
    try:
        parts = urlsplit(f"socket:{rest}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _bad(url, str(error)) from error
    if not host or not port:
        raise _bad(url, "host and port are both needed")
    if parts.path:
        raise _bad(url, "only options may follow the port")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise _bad(url, "the host name is not valid") from error
    return host, port


def _exec(url: str, rest: str) -> Address:
    # A command may hold a question mark of its own: only a known option ends it.
    command, mark, query = rest.rpartition("?")
    if not mark or not query.startswith(tuple(f"{name}=" for name in EXEC_OPTIONS)):
        command, query = rest, ""
    if not command.strip():
        raise _bad(url, "the command is missing")
    return ExecAddress(url, command, dict(parse_qsl(query)).get("cwd"))


def _sim(url: str, rest: str) -> Address:
    path = _path(rest)
    if path.strip("/"):
        raise _bad(url, f"{path!r} is out of place: options follow a question mark")
    pairs = _options(url, rest, SIM_OPTIONS, SIM_LISTS)
    for name, value in pairs:
        if name in SIM_NUMBERS:
            _number(url, name, value)
    files = dict(pairs).get("files")
    if files is not None and "\0" in files:
        raise _bad(url, "the folder name is not valid")
    return SimAddress(url, tuple(pair for pair in pairs if pair[0] != "files"), files)


SCHEMES: Mapping[str, Callable[[str, str], Address]] = {
    "serial": _serial,
    "socket": _socket,
    "rfc2217": _rfc2217,
    "ws": _webrepl,
    "wss": _webrepl,
    "exec": _exec,
    "sim": _sim,
}


def _path(rest: str) -> str:
    return unquote(rest.partition("?")[0])


def _options(url: str, rest: str, known: tuple[str, ...], lists: tuple[str, ...] = ()) -> Options:
    """Parse the options after the question mark. `lists` are the options that may be repeated."""
    query = rest.partition("?")[2]
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=64)
    except ValueError as error:
        raise _bad(url, "cannot read the options: they are NAME=VALUE, with & between them") from error
    seen: set[str] = set()
    for name, _ in pairs:
        if name not in known:
            raise RequestError(f"unknown option {name!r}", where=f"device URL {url!r}", hint=nearest(name, known))
        if name in seen and name not in lists:
            raise _bad(url, f"option {name!r} is given twice")
        seen.add(name)
    return pairs


def _number(url: str, name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > MAX_DIGITS:
        raise _bad(url, f"{name} must be a whole number, not {value!r}")
    return int(value)


def _between(url: str, name: str, value: str, least: int, most: int) -> int:
    number = _number(url, name, value)
    if not least <= number <= most:
        raise _bad(url, f"{name} must be from {least} to {most}, not {number}")
    return number


def _baud(url: str, options: Mapping[str, str]) -> int | None:
    return _between(url, "baud", options["baud"], *BAUD_LIMITS) if "baud" in options else None


def _flag(url: str, name: str, value: str | None) -> bool | None:
    if value is None:
        return None
    if value not in ("0", "1"):
        raise _bad(url, f"{name} must be 0 or 1, not {value!r}")
    return value == "1"


def _bad(url: str, what: str) -> RequestError:
    return RequestError(what, where=f"device URL {url!r}", hint=f"Write it like one of: {EXAMPLES}")
