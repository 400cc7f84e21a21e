"""Where the relay may connect to: nowhere, but for what the operator listed.

A rule is `HOST:PORT`. HOST is a name, an IPv4 address, an IPv6 address in brackets, or a network (`10.0.0.0/8`,
`[fd00::]/8`); PORT is a number or `*`. A target is resolved first, and what is judged is the address, so that another
spelling of an address is the same address. What comes back are addresses to connect to: the name is not asked again,
and may not mean something else a moment later.

An address rule allows whatever resolves into it. A name rule allows its own name alone, and not where that leads to
this computer or its link: whoever answers for a name on the network could otherwise point it there. `localhost` is this
computer, and nothing else. The gateway's own port is allowed by no rule: a stream to it could carry streams.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError, TransportError
from fastflight.gateway.relay.lookups import MAX_LOOKUPS_PER_CLIENT, Lookup, Lookups
from fastflight.service.requests import Verb

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_PORT = 65535
# Addresses of one name that are tried, one after another.
MAX_ADDRESSES = 8
# What DNS allows of a name, and of a part of it; Python's resolver fails on longer parts in a way of its own.
MAX_NAME_CHARACTERS, MAX_LABEL_CHARACTERS = 253, 63
# A last label that is a number makes the system's resolver take the whole for an address in one of inet_aton's
# spellings (127.1, 0x7f000001, 017700000001), which nobody who listed a name means.
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_EXAMPLE = "Give HOST:PORT, as in 127.0.0.1:2218, [fd00::1]:23, 10.0.0.0/8:* or board.local:23"
_HINT = "Who serves allows it: --relay-allow HOST:PORT. With tokens it also takes exec on its device, or admin:*"
LOCALHOST = "localhost"
NO_DEVICES: Mapping[str, str] = {}
# Tunnels that carry an IPv4 address in the place that each network gives it (Teredo, NAT64 with a prefix of one's own).
_TUNNELS = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("64:ff9b:1::/48"))
# Forms with the IPv4 address in their last 32 bits: NAT64, and what RFC 2765 translates.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::ffff:0:0:0/96"))
# Where clouds answer their machines with secrets. The one that most have, 169.254.169.254, is of the link.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that was judged: give `address` to a socket of `family`. `device`: whose line it is, if any's."""

    family: socket.AddressFamily
    address: tuple[str, int]
    device: str = ""


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


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a target is looked for: who it is, its turns at asking the network, the port that it came in by."""

    identity: Identity = ANYBODY
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LOOKUPS_PER_CLIENT))
    own_port: int | None = None


class AllowedTargets:
    """The rules of one relay."""

    def __init__(
        self, rules: Iterable[str] = (), lookup: Lookup | None = None, devices: Mapping[str, str] = NO_DEVICES
    ) -> None:
        """`RequestError` names a rule that is none. `lookup` asks the network what a name means.

        `devices` says which device's line targets are: a rule, and the device's name. It allows nothing by itself.
        """
        self._rules = [_rule(text) for text in rules]
        self._devices = [(_rule(text), device) for text, device in devices.items()]
        self._lookups = Lookups(lookup)

    async def resolve(self, target: str, asker: Asker) -> list[Endpoint]:
        """The addresses of `target` that are allowed to `asker`.

        `RequestError` where none is, in the same words whatever the reason. `TransportError` where the name has no
        address at all, to an asker who may reach whatever it means, or the device that is listed by this name.
        """
        host, port = _parted(target)
        literal = _literal(host)
        name = "" if literal else host.lower().removesuffix(".")
        if literal is None and not (host.isascii() and _is_name(name)):
            raise RequestError("not a name or an address", where=target[:100], hint=_EXAMPLE)
        rules = [rule for rule in self._rules if rule.concerns(name, port)]
        identity = asker.identity
        own = [rule for rule, device in self._devices if rule.concerns(name, port) and _may(identity, device)]
        found = [literal] if literal else []
        # The network is asked only for askers who could be let in: names that exist are not learned by trying.
        if literal is None and rules and (own or identity.may_admin()):
            try:
                found = await self._addresses(name, target, asker.turns)
            except TransportError:
                if identity.may_admin() or any(rule.host == name for rule in own):
                    raise
        allowed = [
            Endpoint(*_socket_address(address, port), self._device(name, address, port))
            for address in found
            if any(rule.allows(name, address) for rule in rules) and not (port == asker.own_port and is_own(address))
        ]
        granted = [endpoint for endpoint in allowed if _may(identity, endpoint.device)]
        if not granted:
            # The same where it is not on the list and where it is for others: a list is not learned by trying.
            raise RequestError("the relay may not connect there", where=target, hint=_HINT)
        return granted[:MAX_ADDRESSES]

    def _device(self, name: str, address: Address, port: int) -> str:
        """The device whose line an allowed target is; empty where it is none's."""
        for rule, device in self._devices:
            if rule.concerns(name, port) and rule.allows(name, address):
                return device
        return ""

    async def _addresses(self, name: str, target: str, turns: asyncio.Semaphore) -> list[Address]:
        if name == LOCALHOST:
            return [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]  # whatever a hosts file says
        try:
            found = await self._lookups.addresses(name, turns)
        except OSError as error:
            raise TransportError("the name has no address", where=target, hint="Check its spelling") from error
        return list(dict.fromkeys(address for text in found if (address := _literal(text)) is not None))


def _may(identity: Identity, device: str) -> bool:
    """Bytes to a device's line are code that runs on it; what is no device's, the server's own may reach."""
    return identity.may_admin() or (device != "" and identity.may(Verb.EXEC, device))


def _socket_address(address: Address, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6, (str(address), port)


def _is_near(address: Address) -> bool:
    """This computer, its link, or no single host at all."""
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or address in _METADATA
        or address in _THIS_NETWORK
        or is_own(address)
    )


def is_own(address: Address) -> bool:
    """An address of this computer, whichever of its networks it is on."""
    if address.is_loopback or address.is_unspecified:
        return True
    family, at = _socket_address(address, 0)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(at)  # sends nothing, and only one's own can be had
    except OSError:
        return False
    return True


def _is_name(name: str) -> bool:
    return (
        _NAME.fullmatch(name) is not None
        and len(name) <= MAX_NAME_CHARACTERS
        and all(len(label) <= MAX_LABEL_CHARACTERS for label in name.split("."))
    )


def _literal(host: str) -> Address | None:
    """`host` as an address, an IPv4 address that is written as IPv6 as IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or _is_tunnelled(address):
            return None  # an interface of this computer is no part of where a peer may go, nor is a tunnel's end
        return _inner(address) or address
    return address


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that the system, or a gateway of the network (NAT64, 6to4), would go on to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = int(address)
    # ::1 and :: are addresses of their own.
    return ipaddress.IPv4Address(compatible) if 1 < compatible < 1 << 32 else None


def _is_tunnelled(address: ipaddress.IPv6Address) -> bool:
    """Teredo, a NAT64 of one's own, or ISATAP, which has `5efe` before the IPv4 address whatever the network."""
    return any(address in network for network in _TUNNELS) or (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE


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
    return text.isascii() and text.isdecimal() and text[0] != "0" and len(text) <= 5 and int(text) <= MAX_PORT


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
    if bracketed or _NUMERIC.fullmatch(name.rpartition(".")[2]) or not _is_name(name):
        raise RequestError("not a name, an address or a network", where=text, hint=_EXAMPLE)
    return _Rule(name, number)
