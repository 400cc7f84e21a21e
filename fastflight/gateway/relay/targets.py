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

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import RequestError, TransportError
from fastflight.gateway.errors import HttpRefusal
from fastflight.service.requests import Verb

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str], Awaitable[list[str]]]

MAX_PORT = 65535
# How many addresses of a name are tried, one after another.
MAX_ADDRESSES = 8
# Lookups at the same time. Each holds a thread until the network's resolver answers, which may take half a minute.
MAX_LOOKUPS = 4
# Those of one client, so that its names without an answer leave places for other clients.
MAX_LOOKUPS_PER_CLIENT = 2
# The limit of DNS. That of a label, 63, is in `_NAME`.
MAX_NAME_CHARACTERS = 253
# The last label is no number: the system's resolver takes such a name for an address in one of inet_aton's spellings
# (127.1, 0x7f000001, 017700000001), which no rule with a name means.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:0x[0-9a-f]*|[0-9]+)\Z){_LABEL}")
_EXAMPLE = "Give HOST:PORT, as in 127.0.0.1:2218, [fd00::1]:23, 10.0.0.0/8:* or board.local:23"
_HINT = "The operator allows it: --relay-allow HOST:PORT. With tokens it also takes exec on its device, or admin:*"
LOCALHOST = "localhost"
# Addresses that stand for an IPv4 address, to which a network may translate them: compatible and translated ones,
# NAT64, Teredo and 6to4.
_TUNNELS = tuple(
    ipaddress.IPv6Network(text)
    for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
# Metadata services of clouds, which give secrets to their machines. The usual one, 169.254.169.254, is link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")


class _Rule(NamedTuple):
    host: Network | str
    # None: every port.
    port: int | None

    def concerns(self, name: str, port: int) -> bool:
        """Return whether this rule may allow an address of `name`, which is empty for a target without a name."""
        return self.port in (None, port) and (self.host == name or not isinstance(self.host, str))

    def allows(self, name: str, address: Address) -> bool:
        """Return whether `address` is allowed for a target `name` that this rule concerns."""
        if isinstance(self.host, str):
            return address.is_loopback if name == LOCALHOST else not _is_near(address)
        return address in self.host


async def _resolve(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class AllowedTargets:
    """The rules of one relay."""

    def __init__(
        self, rules: Iterable[str] = (), lookup: Lookup = _resolve, devices: Mapping[str, str] | None = None
    ) -> None:
        """Raises `RequestError` for an invalid rule. `lookup` resolves names.

        `devices` maps rules to names of devices: a target that such a rule matches is the line of that device. This
        only tells which right a caller needs (`exec`); the target must also match one of the `rules`.
        """
        self._rules = [_rule(text) for text in rules]
        self._devices = [(_rule(text), device) for text, device in (devices or {}).items()]
        self._lookup = lookup
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        # By client, while it has a lookup or waits for one.
        self._lookups_of: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()

    async def resolve(
        self, host: str, port_text: str, caller: Identity = ANYBODY, own_port: int | None = None
    ) -> list[tuple[str, int]]:
        """Return the addresses of a target that `caller` may connect to. An IPv6 address may be in brackets.

        The line of a device requires the verb `exec`, because bytes sent to it are run as code. All other targets
        require an administrator. `own_port` is the port of this computer that the caller is connected to: no target.

        Raises `RequestError` if there is none, with the same text whatever the reason. Raises `TransportError` if the
        name has no address, but only to an admin, or to a caller who may use the device that is listed by this name.
        """
        target = f"{host}:{port_text}"[:100]
        port, parsed = _port(port_text, target), _host(host, target)
        admin = caller.may_admin()
        name = parsed if isinstance(parsed, str) else ""
        rules = [rule for rule in self._rules if rule.concerns(name, port)]
        own = [rule for rule, device in self._devices if rule.concerns(name, port) and caller.may(Verb.EXEC, device)]
        found: list[Address] = []
        if not isinstance(parsed, str):
            found = [parsed]
        elif rules and (own or admin):  # no other caller may learn which names exist
            try:
                found = await self._addresses(name, target, caller.own_name)
            except TransportError:
                if admin or any(rule.host == name for rule in own):
                    raise
        allowed = [
            (str(address), port)
            for address in found
            if any(rule.allows(name, address) for rule in rules)
            and (admin or any(rule.allows(name, address) for rule in own))
            and not (port == own_port and is_own(address))
        ]
        if not allowed:
            # The same text for a target that is not listed and for one that this caller may not use: nobody may learn
            # the list by trying.
            raise HttpRefusal(403, "the relay may not connect there", where=target, hint=_HINT)
        return allowed[:MAX_ADDRESSES]

    async def _addresses(self, name: str, target: str, client: str | None) -> list[Address]:
        if name == LOCALHOST:
            return [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]  # whatever a hosts file says
        own = self._lookups_of.setdefault(client, asyncio.Semaphore(MAX_LOOKUPS_PER_CLIENT))
        await own.acquire()
        try:
            await self._lookups.acquire()
        except BaseException:
            own.release()
            raise
        lookup = asyncio.ensure_future(self._lookup(name))
        lookup.add_done_callback(partial(self._end_lookup, own))
        try:
            # A lookup cannot be cancelled: it keeps its place until it ends, even if its client has left.
            found = await asyncio.shield(lookup)
        except OSError as error:
            raise TransportError("the name has no address", where=target, hint="Check its spelling") from error
        return list(dict.fromkeys(address for text in found if (address := _address(text)) is not None))

    def _end_lookup(self, own: asyncio.Semaphore, lookup: asyncio.Future[list[str]]) -> None:
        own.release()
        self._lookups.release()
        if not lookup.cancelled():
            lookup.exception()  # fetched here, as asyncio logs an exception that nobody has fetched


def _is_near(address: Address) -> bool:
    """Return whether an address is this computer, on its link, a metadata service, or no single host."""
    return (
        address.is_link_local
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
    try:
        with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))  # sends nothing, and succeeds only for an address of this computer
    except OSError:
        return False
    return True


def _address(text: str) -> Address | None:
    """Return an address; None for a name, and for IPv6 with a scope or a tunnel. IPv4 within IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    isatap = (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE  # `5efe` before an IPv4 address, in any network
    tunnel = isatap or (int(address) > 1 and any(address in network for network in _TUNNELS))
    return None if tunnel or address.scope_id is not None else address


def _host(text: str, where: str) -> Address | str:
    """Return the address, or the name in lower case. Raises `RequestError` if it is neither."""
    bracketed = text.startswith("[") and text.endswith("]")
    address = _address(text[1:-1] if bracketed else text)
    if address is not None and (":" in text or not bracketed):
        return address
    name = text.lower().removesuffix(".")
    if text.isascii() and len(name) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(name):
        return name
    hint = "Write an address in full, without a scope or a tunnel. " + _EXAMPLE
    raise RequestError("not a name or an address", where=where, hint=hint)


def _port(text: str, where: str) -> int:
    if text.isascii() and text.isdecimal() and text[0] != "0" and len(text) <= 5 and int(text) <= MAX_PORT:
        return int(text)
    raise RequestError("not a port", where=where, hint=_EXAMPLE)


def _rule(text: str) -> _Rule:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise RequestError("not HOST:PORT", where=text, hint=_EXAMPLE)
    number = None if port == "*" else _port(port, text)
    if "/" in host:
        address, _, length = host.partition("/")
        try:
            # Not converted to IPv4: the prefix length counts the bits of the written form.
            network = ipaddress.ip_network(f"{address.removeprefix('[').removesuffix(']')}/{length}")
        except ValueError as error:
            raise RequestError(f"not a network: {error}", where=text, hint=_EXAMPLE) from error
        return _Rule(network, number)
    if ":" in host and not host.startswith("["):
        raise RequestError("an IPv6 address without brackets", where=text, hint=_EXAMPLE)
    parsed = _host(host, text)
    return _Rule(parsed if isinstance(parsed, str) else ipaddress.ip_network(parsed), number)
