"""Decides where the relay may connect to: only to targets that the operator has listed.

A rule is `HOST:PORT`. HOST is a name, an IPv4 address, an IPv6 address in brackets, or a network (`10.0.0.0/8`,
`[fd00::]/8`); PORT is a number or `*`. A target is resolved first, and the rules judge its addresses, so the spelling
of an address makes no difference. The result is a list of addresses to connect to: the name is not resolved again, as
it could then mean something else.

An address rule allows every target that resolves to its address or network. A name rule allows only its own name, and
only addresses outside of this computer and its link: otherwise whoever answers for the name could direct it there.
`localhost` always means this computer. No rule allows the gateway's own port: a stream to it could carry streams.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError, TransportError
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.relay.lookups import Lookup, Lookups
from fastflight.service.requests import Verb

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_PORT = 65535
# How many addresses of a name are tried, one after another.
MAX_ADDRESSES = 8
# Limits of DNS for a name and for each of its labels. Python's resolver raises an unexpected error for longer labels.
MAX_NAME_CHARACTERS, MAX_LABEL_CHARACTERS = 253, 63
# If the last label is a number, the system's resolver takes the name for an address in one of inet_aton's spellings
# (127.1, 0x7f000001, 017700000001), which no rule with a name means.
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_EXAMPLE = "Give HOST:PORT, as in 127.0.0.1:2218, [fd00::1]:23, 10.0.0.0/8:* or board.local:23"
_HINT = "The operator allows it: --relay-allow HOST:PORT. With tokens it also takes exec on its device, or admin:*"
LOCALHOST = "localhost"
NO_DEVICES: Mapping[str, str] = {}
# Tunnels that carry an IPv4 address at a place that differs between networks (Teredo, NAT64 with a private prefix).
_TUNNELS = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("64:ff9b:1::/48"))
# Networks with an IPv4 address in the last 32 bits: NAT64, and the translated addresses of RFC 2765.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::ffff:0:0:0/96"))
# Metadata services of clouds, which give secrets to their machines. The usual one, 169.254.169.254, is link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An allowed address: connect a socket of `family` to `address`. `device`: the device that it belongs to, or ""."""

    family: socket.AddressFamily
    address: tuple[str, int]
    device: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    host: Network | str
    # None: every port.
    port: int | None

    def concerns(self, name: str, port: int) -> bool:
        """Return whether this rule may allow an address of `name`."""
        return self.port in (None, port) and (self.host == name or not isinstance(self.host, str))

    def allows(self, name: str, address: Address) -> bool:
        """Return whether `address` is allowed for a target `name` that this rule concerns."""
        if isinstance(self.host, str):
            return address.is_loopback if name == LOCALHOST else not _is_near(address)
        return address in self.host


class AllowedTargets:
    """The rules of one relay."""

    def __init__(
        self, rules: Iterable[str] = (), lookup: Lookup | None = None, devices: Mapping[str, str] = NO_DEVICES
    ) -> None:
        """Raises `RequestError` for an invalid rule. `lookup` resolves names.

        `devices` maps rules to names of devices: a target that such a rule matches is the line of that device. This
        only tells which right a caller needs (`exec`); the target must also match one of the `rules`.
        """
        self._rules = [_rule(text) for text in rules]
        self._devices = [(_rule(text), device) for text, device in devices.items()]
        self._lookups = Lookups(lookup)

    async def resolve(
        self, host: str, port_text: str, caller: Identity = ANYBODY, own_port: int | None = None
    ) -> list[Endpoint]:
        """Return the addresses of a target that `caller` may connect to. An IPv6 address may be in brackets.

        `own_port` is the port of this computer that the caller is connected to, which is no target.

        Raises `RequestError` if there is none, with the same text whatever the reason. Raises `TransportError` if the
        name has no address, but only to an admin, or to a caller who may use the device that is listed by this name.
        """
        target = f"{host}:{port_text}"[:100]
        host, port = _checked_host(host, target), _checked_port(port_text)
        literal = _literal(host)
        name = "" if literal else host.lower().removesuffix(".")
        if literal is None and not (host.isascii() and _is_name(name)):
            raise RequestError("not a name or an address", where=target, hint=_EXAMPLE)
        rules = [rule for rule in self._rules if rule.concerns(name, port)]
        own = [rule for rule, device in self._devices if rule.concerns(name, port) and _is_granted(caller, device)]
        found = [literal] if literal else []
        # Names are resolved only for callers who could be allowed: nobody else may learn which names exist.
        if literal is None and rules and (own or caller.may_admin()):
            try:
                found = await self._addresses(name, target, caller.name)
            except TransportError:
                if caller.may_admin() or any(rule.host == name for rule in own):
                    raise
        allowed = [
            Endpoint(*_socket_address(address, port), self._device(name, address, port))
            for address in found
            if any(rule.allows(name, address) for rule in rules) and not (port == own_port and is_own(address))
        ]
        granted = [endpoint for endpoint in allowed if _is_granted(caller, endpoint.device)]
        if not granted:
            # The same text for a target that is not listed and for one that this caller may not use: nobody may learn
            # the list by trying.
            raise HttpRefusal(403, "the relay may not connect there", where=target, hint=_HINT)
        return granted[:MAX_ADDRESSES]

    def _device(self, name: str, address: Address, port: int) -> str:
        """Return the name of the device that an allowed target belongs to; empty if it belongs to none."""
        for rule, device in self._devices:
            if rule.concerns(name, port) and rule.allows(name, address):
                return device
        return ""

    async def _addresses(self, name: str, target: str, client: str) -> list[Address]:
        if name == LOCALHOST:
            return [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]  # whatever a hosts file says
        try:
            found = await self._lookups.addresses(name, client)
        except OSError as error:
            raise TransportError("the name has no address", where=target, hint="Check its spelling") from error
        return list(dict.fromkeys(address for text in found if (address := _literal(text)) is not None))


def _is_granted(identity: Identity, device: str) -> bool:
    """Return whether `identity` may connect to a target.

    The line of a device requires the verb `exec`, because bytes sent to it are run as code. All other targets require
    an administrator of the server.
    """
    return identity.may_admin() or (device != "" and identity.may(Verb.EXEC, device))


def _socket_address(address: Address, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6, (str(address), port)


def _is_near(address: Address) -> bool:
    """Return whether an address is this computer, on its link, a metadata service, or no single host."""
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
    """Return whether this is an address of this computer, on any of its interfaces."""
    if address.is_loopback or address.is_unspecified:
        return True
    family, at = _socket_address(address, 0)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(at)  # sends nothing, and succeeds only for an address of this computer
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
    """Return `host` as an address, or None for a name. An IPv4 address within an IPv6 address becomes IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or _is_tunnelled(address):
            return None  # a target may name neither an interface of this computer nor a tunnel
        return _embedded_ipv4(address) or address
    return address


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that the system, or a gateway of the network (NAT64, 6to4), would connect to, if any."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = int(address)
    # ::1 and :: are IPv6 addresses.
    return ipaddress.IPv4Address(compatible) if 1 < compatible < 1 << 32 else None


def _is_tunnelled(address: ipaddress.IPv6Address) -> bool:
    """Return whether this is Teredo, private NAT64, or ISATAP (`5efe` before the IPv4 address, in any network)."""
    return any(address in network for network in _TUNNELS) or (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE


def _checked_host(text: str, target: str) -> str:
    """Return the host without brackets. Raises `RequestError` for an address that is not written in full."""
    bracketed = text.startswith("[") and text.endswith("]")
    host = text[1:-1] if bracketed else text
    if _literal(host) is None and (bracketed or _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2])):
        raise RequestError("not an address", where=target, hint="Write it in full, without a scope")
    if bracketed and ":" not in host:
        raise RequestError("not an IPv6 address", where=target, hint="Leave out the brackets")
    return host


def _checked_port(text: str) -> int:
    if not _is_port(text):
        raise RequestError("not a port", where=text[:20], hint=f"A number from 1 to {MAX_PORT}")
    return int(text)


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
            # Not converted to IPv4: the prefix length counts the bits of the written form.
            return _Rule(ipaddress.ip_network(f"{bare}/{length}"), number)
        except ValueError as error:
            raise RequestError(f"not a network: {error}", where=text, hint=_EXAMPLE) from error
    if literal is not None and bracketed is (":" in bare):
        return _Rule(ipaddress.ip_network(literal), number)
    name = bare.lower().removesuffix(".")
    if bracketed or _NUMERIC.fullmatch(name.rpartition(".")[2]) or not _is_name(name):
        raise RequestError("not a name, an address or a network", where=text, hint=_EXAMPLE)
    return _Rule(name, number)
