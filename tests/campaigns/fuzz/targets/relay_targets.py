"""Rules and targets of the relay: nothing is allowed beyond the rules, in whatever spelling."""

from __future__ import annotations

import ipaddress

from fastflight.errors import RequestError, TransportError
from fastflight.gateway.relay.targets import AllowedTargets, Asker
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.shared_loop import Loop
from tests.campaigns.fuzz.target import Target

RULES = ("127.0.0.1:2218", "[fd00::1]:23", "10.0.0.0/8:*", "board.local:23", "localhost:80", "[64:ff9b::]/96:*")
FOUND = ("192.168.1.5", "127.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "169.254.169.254", "fd00::1", "x")
LOOP = Loop()


def run(data: bytes) -> None:
    material = Material(data)
    choice, answer = material.byte(), material.byte()
    given = material.piece().decode("utf-8", "replace")
    target = material.rest().decode("utf-8", "replace")

    async def lookup(name: str) -> list[str]:
        return [found for index, found in enumerate(FOUND) if answer >> index & 1]

    fixed = [rule for index, rule in enumerate(RULES) if choice >> index & 1]
    try:
        allowed = AllowedTargets(fixed, lookup)
    except RequestError as error:
        raise AssertionError("the rules are good") from error
    try:
        AllowedTargets([given])
    except RequestError as error:
        assert str(error)
    try:
        host, _, port = target.rpartition(":")
        endpoints = LOOP.run(allowed.resolve(host, port, Asker()))
    except (RequestError, TransportError) as error:
        assert str(error)
        return
    assert endpoints and choice & 63
    for endpoint in endpoints:
        address = ipaddress.ip_address(endpoint.address[0])
        near = address.is_loopback or address.is_link_local
        assert not near or choice & 0b010001 and address.is_loopback
        assert choice & 0b001010 or not near or choice & 0b010001


TARGET = Target(
    run,
    modules=("fastflight.gateway.relay.targets",),
    seeds=(
        b"\xff\xff\x00127.0.0.1:2218",
        b"\xff\x02\x0510/8:[::ffff:10.1.2.3]:5",
        b"\x08\xff\x0fboard.local.:23board.local:23",
        b"\x10\x00\x00LOCALHOST:80",
        b"\xff\xff\x11[fd00::]/120:65535[64:ff9b::7f00:1]:80",
        b"\xff\xff\x000x7f.1:2218",
        b"\xff\xff\x00[2002:7f00:1::]:80",
        b"\xff\xff\x00[fe80::1%25eth0]:1",
    ),
    running=LOOP.running,
)
