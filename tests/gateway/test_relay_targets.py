"""Where the relay may connect to: what is listed, in any spelling, and nothing that only looks like it."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import FastFlightError, RequestError, TransportError
from fastflight.gateway.relay_targets import AllowedTargets

# What the network says in these tests.
NAMES = {
    "board.local": ["192.168.4.7"],
    "two.example": ["192.168.4.8", "fd00::8", "192.168.4.8"],
    "rebound.example": ["127.0.0.1"],
    "rebound6.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "link.example": ["169.254.169.254"],
    "scoped.example": ["fe80::1%1"],
    "mixed.example": ["127.0.0.1", "192.168.4.9"],
}


async def lookup(name: str) -> list[str]:
    if name not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[name]


async def never(name: str) -> list[str]:
    raise AssertionError(f"{name} was looked up")


def resolved(rules: list[str], target: str) -> list[tuple[str, int]]:
    return [each.address for each in asyncio.run(AllowedTargets(rules, lookup).resolve(target))]


@pytest.mark.parametrize(
    ("rule", "target", "address"),
    [
        ("127.0.0.1:23", "127.0.0.1:23", "127.0.0.1"),
        ("127.0.0.1:*", "127.0.0.1:23", "127.0.0.1"),
        ("127.0.0.1:23", "localhost:23", "127.0.0.1"),
        ("127.0.0.1:23", "LOCALHOST.:23", "127.0.0.1"),
        ("127.0.0.1:23", "[::ffff:127.0.0.1]:23", "127.0.0.1"),
        ("127.0.0.1:23", "[::ffff:7f00:1]:23", "127.0.0.1"),
        ("[::1]:23", "[0:0:0:0:0:0:0:1]:23", "::1"),
        ("[::ffff:127.0.0.1]:23", "127.0.0.1:23", "127.0.0.1"),
        ("10.0.0.0/8:23", "10.255.0.1:23", "10.255.0.1"),
        ("[fd00::]/8:23", "[fd12::9]:23", "fd12::9"),
        ("board.local:23", "board.local:23", "192.168.4.7"),
        ("Board.Local.:23", "BOARD.local.:23", "192.168.4.7"),
        ("192.168.4.7:23", "board.local:23", "192.168.4.7"),
        ("mixed.example:23", "mixed.example:23", "192.168.4.9"),
    ],
)
def test_what_is_listed_is_connected_to_by_the_address_that_was_judged(rule: str, target: str, address: str) -> None:
    assert resolved([rule], target) == [(address, 23)]


def test_a_name_has_each_of_its_addresses_once() -> None:
    assert resolved(["two.example:23"], "two.example:23") == [("192.168.4.8", 23), ("fd00::8", 23)]


# Each tries to be taken for something that is listed, or to reach this computer by a listed name.
EVASIONS = [
    ("127.0.0.1:23", "127.0.0.1:24"),
    ("127.0.0.1:23", "127.0.0.2:23"),
    ("192.168.4.7:23", "127.0.0.1:23"),
    ("192.168.4.7:23", "[::ffff:127.0.0.1]:23"),
    ("192.168.4.0/24:*", "[::ffff:7f00:1]:23"),
    ("[fd00::]/8:*", "[::ffff:127.0.0.1]:23"),
    ("[::]/0:*", "[::ffff:127.0.0.1]:23"),
    ("[::]/0:*", "[::127.0.0.1]:23"),
    ("[::]/0:*", "[64:ff9b::7f00:1]:23"),
    ("[::]/0:*", "[2002:7f00:1::]:23"),
    ("[fe80::1]:23", "[fe80::1%lo]:23"),
    ("[fe80::1]:23", "[fe80::1%251]:23"),
    ("[fe80::]/10:*", "scoped.example:23"),
    ("127.0.0.1:23", "127.1:23"),
    ("127.0.0.1:23", "127.0.1:23"),
    ("127.0.0.1:23", "0x7f.0.0.1:23"),
    ("127.0.0.1:23", "0x7f000001:23"),
    ("127.0.0.1:23", "2130706433:23"),
    ("127.0.0.1:23", "017700000001:23"),
    ("127.0.0.1:23", "127.0.0.01:23"),
    ("127.0.0.1:23", "127.0.0.1.:23"),
    ("127.0.0.1:23", "0:23"),
    ("127.0.0.1:23", "0.0.0.0:23"),
    ("127.0.0.1:23", "[::]:23"),
    ("127.0.0.1:23", "\uff11\uff12\uff17.0.0.1:23"),
    ("127.0.0.1:23", "127\u30020.0.1:23"),
    ("127.0.0.1:23", "127.0.0.1:23@elsewhere:23"),
    ("127.0.0.1:23", "user@127.0.0.1:23"),
    ("127.0.0.1:23", "127.0.0.1:\uff12\uff13"),
    ("127.0.0.1:23", "127.0.0.1: 23"),
    ("127.0.0.1:23", "127.0.0.1:+23"),
    ("127.0.0.1:23", "127.0.0.1:2_3"),
    ("127.0.0.1:23", " 127.0.0.1:23"),
    ("127.0.0.1:23", "127.0.0.1\n:23"),
    ("127.0.0.1:23", "127.0.0.1\0.example:23"),
    ("127.0.0.1:23", "127.0.0.1%0:23"),
    ("127.0.0.1:23", "127.0.0.1/8:23"),
    ("127.0.0.1:23", "::1:23"),
    ("127.0.0.1:23", "[127.0.0.1]:23"),
    ("127.0.0.1:23", "[localhost]:23"),
    ("127.0.0.1:65559", "127.0.0.1:23"),
    ("board.local:23", "192.168.4.7:23"),
    ("board.local:23", "board.local.evil.example:23"),
    ("board.local:23", "evil.board.local:23"),
    ("board.local:23", "two.example:23"),
    ("*:23", "127.0.0.1:23"),
    ("rebound.example:23", "rebound.example:23"),
    ("rebound6.example:23", "rebound6.example:23"),
    ("mapped.example:23", "mapped.example:23"),
    ("link.example:23", "link.example:23"),
    ("192.168.4.7:*", "rebound.example:23"),
    ("board.local:*", "localhost:23"),
    ("127.0.0.1:23", ":23"),
    ("127.0.0.1:23", "127.0.0.1"),
    ("127.0.0.1:23", "127.0.0.1:"),
    ("127.0.0.1:23", "127.0.0.1:0"),
    ("127.0.0.1:23", ""),
]


@pytest.mark.parametrize(("rule", "target"), EVASIONS)
def test_what_only_looks_like_it_is_refused(rule: str, target: str) -> None:
    with pytest.raises(RequestError):
        resolved([rule], target)


def test_nothing_is_allowed_by_default_and_then_nothing_is_looked_up() -> None:
    for rules in ([], ["board.local:24"]):
        with pytest.raises(RequestError, match="--relay-allow"):
            asyncio.run(AllowedTargets(rules, never).resolve("board.local:23"))


def test_localhost_is_this_computer_whatever_the_network_says() -> None:
    found = asyncio.run(AllowedTargets(["localhost:23"], never).resolve("localhost:23"))
    assert [each.address[0] for each in found] == ["127.0.0.1", "::1"]


def test_a_name_without_an_address_is_no_fault_of_the_request() -> None:
    with pytest.raises(TransportError, match="no address"):
        resolved(["gone.example:23"], "gone.example:23")


@pytest.mark.parametrize(
    "rule", ["", "x", "x:", ":23", "x:0", "x:65536", "x:http", "::1:23", "[x]:23", "127.1:23", "10.0.0.1/8:23", "a b:1"]
)
def test_a_rule_that_is_none_is_named(rule: str) -> None:
    with pytest.raises(RequestError) as caught:
        AllowedTargets([rule])
    assert caught.value.where == rule and "HOST:PORT" in caught.value.hint


@given(st.text(max_size=30) | st.from_regex(r"[\[\]0-9a-fx:.%/]{1,40}:[0-9]{1,5}", fullmatch=True))
def test_no_target_gets_around_a_network(target: str) -> None:
    try:
        found = resolved(["192.168.4.0/24:*"], target)
    except FastFlightError:
        return
    assert all(address.startswith("192.168.4.") for address, _ in found)
