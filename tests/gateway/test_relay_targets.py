"""Where the relay may connect to: what is listed, in any spelling, and nothing that only looks like it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.access.identity import ANYBODY, Identity, scopes
from fastflight.errors import FastFlightError, RequestError, TransportError
from fastflight.gateway.relay.targets import MAX_LOOKUPS, AllowedTargets, is_own

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
    "several.example": ["192.168.5.1", "192.168.4.9", "192.168.5.2"],
    "zero.example": ["0.0.0.0"],
    "nought.example": ["0.1.2.3"],
    "multicast.example": ["224.0.0.1"],
    "multicast6.example": ["ff02::1"],
    "broadcast.example": ["255.255.255.255"],
    "reserved.example": ["240.0.0.1"],
    "metadata6.example": ["fd00:ec2::254"],
    "metadata.example": ["100.100.100.200"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "own64.example": ["64:ff9b:1::7f00:1"],
    "6to4.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "isatap.example": ["2620::5efe:127.0.0.1"],
    "compatible.example": ["::127.0.0.1"],
    "xn--brd-ula.example": ["127.0.0.1"],
    "127.0.0.1.nip.example": ["127.0.0.1"],
}
# A name rule for each that leads to this computer, its link, a tunnel, or no single host.
LED = [name for name in NAMES if not name.startswith(("board", "two", "mixed", "several", "scoped"))]


async def lookup(name: str) -> list[str]:
    if name not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[name]


async def never(name: str) -> list[str]:
    raise AssertionError(f"{name} was looked up")


def resolved(rules: list[str], target: str) -> list[tuple[str, int]]:
    return asyncio.run(resolve(AllowedTargets(rules, lookup), target))


async def resolve(
    allowed: AllowedTargets, target: str, caller: Identity = ANYBODY, own_port: int | None = None
) -> list[tuple[str, int]]:
    host, _, port = target.rpartition(":")
    return await allowed.resolve(host, port, caller, own_port)


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
        ("[64:ff9c::]/32:23", "[64:ff9c::1]:23", "64:ff9c::1"),
        ("[fd00::]/8:23", "[fd12::9]:23", "fd12::9"),
        ("board.local:23", "board.local:23", "192.168.4.7"),
        ("Board.Local.:23", "BOARD.local.:23", "192.168.4.7"),
        ("192.168.4.7:23", "board.local:23", "192.168.4.7"),
        ("mixed.example:23", "mixed.example:23", "192.168.4.9"),
        ("192.168.4.9:23", "several.example:23", "192.168.4.9"),
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
    ("[::]/0:*", "[::ffff:0:7f00:1]:23"),
    ("[::]/0:*", "[64:ff9b:1::7f00:1]:23"),
    ("[::]/0:*", "[64:ff9b:1:ffff::7f00:1]:23"),
    ("[::]/0:*", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]:23"),
    ("[::]/0:*", "[2001::1]:23"),
    ("[::]/0:*", "[fe80::5efe:127.0.0.1]:23"),
    ("[::]/0:*", "[2620::200:5efe:7f00:1]:23"),
    ("[::]/0:*", "teredo.example:23"),
    ("[::]/0:*", "nat64.example:23"),
    ("[::]/0:*", "compatible.example:23"),
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
    ("127.0.0.1:23", "127.0.0.1:023"),
    ("127.0.0.1:23", "127.0.0.1:-23"),
    ("127.0.0.1:23", "127.0.0.1:23 "),
    ("127.0.0.1:23", "127.0.0.1:0x17"),
    ("127.0.0.1:23", "127.0.0.1:23\0"),
    ("127.0.0.1:23", "127.0.0.1:65559"),
    ("127.0.0.1:23", "127.0.0.1:4294967319"),
    ("127.0.0.1:23", "127.0.0.1:23/path"),
    ("127.0.0.1:23", "127.0.0.1:23#"),
    ("127.0.0.1:23", "tcp://127.0.0.1:23"),
    ("127.0.0.1:23", "//127.0.0.1:23"),
    ("127.0.0.1:23", "[[127.0.0.1]]:23"),
    ("[::1]:23", "[::1]]:23"),
    ("[::1]:23", "[::1]:23:23"),
    ("127.0.0.1:23", "\u2460\u2461\u2466.0.0.1:23"),
    ("127.0.0.1:23", "127\uff0e0\uff0e0\uff0e1:23"),
    ("board.local:23", "\uff42oard.local:23"),
    ("board.local:23", "b\u043eard.local:23"),
    ("board.local:23", "board\u3002local:23"),
    ("board.local:23", "board.local..:23"),
    ("board.local:23", ".board.local:23"),
    ("board.local:23", "board..local:23"),
    ("board.local:23", "board.local\0:23"),
    ("board.local:23", "board.local\r\n:23"),
    ("board.local:23", "board.local\u00ad:23"),
    ("board.local:23", "bo%61rd.local:23"),
    ("kboard.local:23", "\u212aboard.local:23"),
    ("192.168.4.0/24:*", f"{'a' * 64}.example:23"),
    ("192.168.4.0/24:*", f"{'a.' * 127}a:23"),
    ("127.0.0.1:23", ":23"),
    ("127.0.0.1:23", "127.0.0.1"),
    ("127.0.0.1:23", "127.0.0.1:"),
    ("127.0.0.1:23", "127.0.0.1:0"),
    ("127.0.0.1:23", ""),
]


def test_what_only_looks_like_it_is_refused() -> None:
    assert [case for case in EVASIONS if not is_refused(*case)] == []


def test_a_listed_name_leads_to_no_place_that_whoever_answers_for_it_chose() -> None:
    assert [name for name in LED if not is_refused(f"{name}:23", f"{name}:23")] == []


def is_refused(rule: str, target: str) -> bool:
    try:
        resolved([rule], target)
    except RequestError:
        return True
    return False


def test_of_several_addresses_those_that_are_allowed_are_connected_to() -> None:
    assert resolved(["192.168.5.0/24:*"], "several.example:23") == [("192.168.5.1", 23), ("192.168.5.2", 23)]
    assert resolved(["mixed.example:*"], "mixed.example:23") == [("192.168.4.9", 23)]


def test_an_address_of_this_computer_on_a_network_is_this_computer() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1")) and is_own(ipaddress.ip_address("::"))
    assert not is_own(ipaddress.ip_address("192.0.2.1")) and not is_own(ipaddress.ip_address("2001:db8::1"))


def test_a_name_is_asked_for_once_and_what_was_judged_is_what_is_connected_to() -> None:
    answers = iter([["192.168.4.7"], ["127.0.0.1"]])

    async def changing(name: str) -> list[str]:
        return next(answers)

    async def work() -> None:
        allowed = AllowedTargets(["board.local:23"], changing)
        assert await resolve(allowed, "board.local:23") == [("192.168.4.7", 23)]
        with pytest.raises(RequestError):
            await resolve(allowed, "board.local:23")

    asyncio.run(work())


def test_the_port_that_the_gateway_listens_at_is_no_target() -> None:
    async def work() -> None:
        allowed = AllowedTargets(["127.0.0.1:*", "[::1]:*", "192.0.2.1:*", "0.0.0.0:*"], lookup)
        for target in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "[::ffff:7f00:1]:8000", "0.0.0.0:8000"):
            with pytest.raises(RequestError):
                await resolve(allowed, target, own_port=8000)
        for target in ("127.0.0.1:8001", "192.0.2.1:8000"):
            assert await resolve(allowed, target, own_port=8000)

    asyncio.run(work())


def test_who_may_run_code_on_a_device_may_reach_its_line_and_the_rest_is_the_servers_own() -> None:
    async def work() -> None:
        devices = {"192.168.4.7:23": "plc", "127.0.0.1:2218": "demo"}
        allowed = AllowedTargets(["board.local:*", "127.0.0.1:*"], lookup, devices)
        reached = {
            (name, target)
            for name, texts in {"plc": ["exec:plc"], "reader": ["read,write,session:*"], "admin": ["admin:*"]}.items()
            for target in ("board.local:23", "192.168.4.7:23", "127.0.0.1:2218", "localhost:2218", "127.0.0.1:9")
            if await _reaches(allowed, target, Identity(name, scopes(texts)))
        }
        # A rule has to allow it as well: 192.168.4.7 has none.
        assert reached == {
            ("plc", "board.local:23"),
            *(("admin", each) for each in ("board.local:23", "127.0.0.1:2218", "localhost:2218", "127.0.0.1:9")),
        }

    asyncio.run(work())


async def _reaches(allowed: AllowedTargets, target: str, asker: Identity) -> bool:
    try:
        return bool(await resolve(allowed, target, asker))
    except RequestError as error:
        assert error.what == "the relay may not connect there"
        return False


def test_nothing_is_allowed_by_default_and_then_nothing_is_looked_up() -> None:
    for rules in ([], ["board.local:24"]):
        with pytest.raises(RequestError, match="--relay-allow"):
            asyncio.run(resolve(AllowedTargets(rules, never), "board.local:23"))


def test_localhost_is_this_computer_whatever_the_network_says() -> None:
    found = asyncio.run(resolve(AllowedTargets(["localhost:23"], never), "localhost:23"))
    assert [address for address, _ in found] == ["127.0.0.1", "::1"]


def test_a_name_without_an_address_is_no_fault_of_the_request() -> None:
    with pytest.raises(TransportError, match="no address"):
        resolved(["gone.example:23"], "gone.example:23")


@pytest.mark.parametrize(
    "rule",
    ["", "x", "x:", ":23", "x:0", "x:65536", "x:http", "::1:23", "[x]:23", "127.1:23", "10.0.0.1/8:23", "a b:1"]
    + ["[2002:7f00:1::]:23", "[::ffff:0:c0a8:407]:23", "::ffff:127.0.0.1:23"],
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


NAMED = ["192.168.4.0/24:23", "board.local:23", "gone.local:23", "other.local:23"]
LINES = {"192.168.4.7:23": "lab-1", "gone.local:23": "lab-2"}


@pytest.mark.parametrize("target", ["board.local:23", "gone.local:23", "none.example:23", "192.168.4.7:23"])
def test_names_are_not_looked_up_for_askers_without_rights(target: str) -> None:
    for granted in (("read:*",), ("exec:secret",)):
        asker = Identity("somebody", scopes(granted))
        with pytest.raises(RequestError, match="the relay may not connect there"):
            asyncio.run(resolve(AllowedTargets(NAMED, never, LINES), target, asker))


def refusal(granted: str, target: str) -> str:
    asker = Identity("somebody", scopes((granted,)))
    with pytest.raises(FastFlightError) as caught:
        asyncio.run(resolve(AllowedTargets(NAMED, lookup, LINES), target, asker))
    return caught.value.what


def test_names_that_do_not_exist_are_told_only_to_askers_who_may_reach_them() -> None:
    assert refusal("exec:lab-1", "none.example:23") == refusal("exec:lab-1", "two.example:23")
    assert refusal("exec:lab-1", "other.local:23") == refusal("exec:lab-1", "two.example:23")
    assert refusal("exec:lab-2", "gone.local:23") == "the name has no address"
    assert refusal("admin:*", "none.example:23") == "the name has no address"


def test_a_client_has_few_lookups_and_one_keeps_its_place_even_if_its_client_has_left() -> None:
    async def work() -> None:
        asked: list[str] = []
        answer = asyncio.Event()

        async def slow(name: str) -> list[str]:
            asked.append(name)
            await answer.wait()
            return await lookup(name)

        async def idle() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        allowed = AllowedTargets(["192.168.4.0/24:23"], slow)
        callers = [Identity(name, scopes(("admin:*",))) for name in ("one", "two", "three")]
        targets = ((f"{caller.name}-{number}:23", caller) for caller in callers for number in range(3))
        clients = [asyncio.ensure_future(resolve(allowed, *each)) for each in targets]
        await idle()
        for client in clients[:6]:
            client.cancel()
        await idle()
        assert asked == ["one-0", "one-1", "two-0", "two-1"] and len(asked) == MAX_LOOKUPS
        answer.set()
        assert await resolve(allowed, "board.local:23") == [("192.168.4.7", 23)]
        results = await asyncio.gather(*clients, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError] * 6 + [TransportError] * 3

    asyncio.run(work())
