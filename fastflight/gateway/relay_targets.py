"""Where the relay may connect to: nowhere, but for what the operator listed.

A rule is `HOST:PORT`. HOST is a name, an IPv4 address, an IPv6 address in brackets, or a network (`10.0.0.0/8`,
`[fd00::]/8`); PORT is a number or `*`. A target is resolved first, and what is judged is the address, so that another
spelling of an address is the same address. What comes back are addresses to connect to: the name is not asked again,
and may not mean something else a moment later.

An address rule allows whatever resolves into it. A name rule allows its own name alone, and not where that leads to
this computer or its link: whoever answers for a name on the network could otherwise point it there. `localhost` is this
computer, and nothing else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from fastflight.errors import RequestError, TransportError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_PORT = 65535
# Addresses of one name that are tried, one after another.
MAX_ADDRESSES = 8
# A last label that is a number makes the system's resolver take the whole for an address in one of inet_aton's
# spellings (127.1, 0x7f000001, 017700000001), which nobody who listed a name means.
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_EXAMPLE = "Give HOST:PORT, as in 127.0.0.1:2218, [fd00::1]:23, 10.0.0.0/8:* or board.local:23"
LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that was judged: give `address` to a socket of `family`."""

    family: socket.AddressFamily
    address: tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    host: Network | str
    # None for every port.
    port: int | None

    def concerns(self, name: str, port: int) -> bool:
        """Whether it may allow an address of `name`."""
        return self.port in (None, port) and (self.host == name or not isinstance(self.host, str))

    def allows(self, name: str, address: Address) -> bool:
        """Whether `address` is one to connect to, when `name`, which it concerns, was asked for."""
        if isinstance(self.host, str):
            return address.is_loopback if name == LOCALHOST else not _is_near(address)
        return address in self.host


class AllowedTargets:
    """The rules of one relay."""

    def __init__(self, rules: Iterable[str] = (), lookup: Callable[[str], Awaitable[list[str]]] | None = None) -> None:
        """`RequestError` names a rule that is none. `lookup` asks the network what a name means."""
        self._rules = [_rule(text) for text in rules]
        self._lookup = lookup or _looked_up

    async def resolve(self, target: str) -> list[Endpoint]:
        """The addresses of `target` that are allowed.

        `RequestError` where none is, `TransportError` where the name has none at all.
        """
        host, port = _parted(target)
        literal = _literal(host)
        name = "" if literal else host.lower().removesuffix(".")
        if literal is None and not _NAME.fullmatch(name):
            raise RequestError("not a name or an address", where=target, hint=_EXAMPLE)
        rules = [rule for rule in self._rules if rule.concerns(name, port)]
        # Where there is none, nothing is asked of the network either.
        found = [] if not rules else [literal] if literal else await self._addresses(name, target)
        allowed = [address for address in found if any(rule.allows(name, address) for rule in rules)]
        if not allowed:
            raise RequestError(
                "the relay may not connect there", where=target, hint="Allow it when serving: --relay-allow HOST:PORT"
            )
        return [_endpoint(address, port) for address in allowed[:MAX_ADDRESSES]]

    async def _addresses(self, name: str, target: str) -> list[Address]:
        if name == LOCALHOST:
            return [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]  # whatever a hosts file says
        try:
            found = await self._lookup(name)
        except OSError as error:
            raise TransportError("the name has no address", where=target, hint="Check its spelling") from error
        return list(dict.fromkeys(address for text in found if (address := _literal(text)) is not None))


async def _looked_up(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


def _endpoint(address: Address, port: int) -> Endpoint:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return Endpoint(family, (str(address), port))


def _is_near(address: Address) -> bool:
    """This computer, its link, or no single host at all."""
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or address == ipaddress.IPv4Address("255.255.255.255")
    )


def _literal(host: str) -> Address | None:
    """`host` as an address, an IPv4 address that is written as IPv6 as IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None  # an interface of this computer is no part of where a peer may go
        return _inner(address) or address
    return address


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that the system, or a gateway of the network (NAT64, 6to4), would go on to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in ipaddress.IPv6Network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = int(address)
    # ::1 and :: are addresses of their own.
    return ipaddress.IPv4Address(compatible) if 1 < compatible < 1 << 32 else None


def _parted(target: str) -> tuple[str, int]:
    """Host and port of a target."""
    host, colon, port = target.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or not _is_port(port) or bracketed is not (":" in host):
        raise RequestError("not HOST:PORT", where=target[:100], hint="As in board.local:23 or [fd00::1]:23")
    if _literal(host) is None and (bracketed or _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2])):
        raise RequestError("not an address", where=target[:100], hint="Write it in full, without a scope")
    return host, int(port)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= MAX_PORT


def _rule(text: str) -> _Rule:
    host, colon, port = text.rpartition(":")
    if not colon or not (port == "*" or _is_port(port)):
        raise RequestError("not HOST:PORT", where=text, hint=_EXAMPLE)
    number = None if port == "*" else int(port)
    bare, slash, length = host.partition("/")
    bracketed = bare.startswith("[") and bare.endswith("]")
    bare = bare[1:-1] if bracketed else bare
    literal = _literal(bare)
    if slash:
        try:
            # As it was written: the length counts the bits of that form.
            return _Rule(ipaddress.ip_network(f"{bare}/{length}"), number)
        except ValueError as error:
            raise RequestError(f"not a network: {error}", where=text, hint=_EXAMPLE) from error
    if literal is not None and bracketed is (":" in bare):
        return _Rule(ipaddress.ip_network(literal), number)
    name = bare.lower().removesuffix(".")
    if bracketed or _NUMERIC.fullmatch(name.rpartition(".")[2]) or not _NAME.fullmatch(name):
        raise RequestError("not a name, an address or a network", where=text, hint=_EXAMPLE)
    return _Rule(name, number)
