"""What a gateway knows of callers whose server is elsewhere, while something of theirs is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fastflight.access.identity import Identity, scopes, unproven
from fastflight.app.revocation import ASK_SECONDS, SILENT_SECONDS, RevocationCheck
from fastflight.errors import FastFlightError, TransportError, Unauthenticated
from fastflight.gateway.auth import ANYONE, Caller

ADA = Caller(Identity("ada", scopes(["exec:lab"])), "Bearer one")


@dataclass
class Server:
    """A server elsewhere, as it answers, and how often it was asked."""

    error: FastFlightError | None = None
    identity: Identity = ADA.identity
    asked: list[str] = field(default_factory=list)
    now: float = 0.0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def identify(self, caller: Caller) -> Caller:
        self.asked.append(caller.authorization)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return replace(caller, identity=self.identity)


def watched(work: Callable[[Server, RevocationCheck], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        server = Server()
        server.gate.set()
        await work(server, RevocationCheck(server.identify, lambda: server.now))

    asyncio.run(run())


async def answered() -> None:
    """Let what was asked be answered."""
    for _ in range(4):
        await asyncio.sleep(0)


def test_it_is_asked_at_once_and_then_now_and_then() -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        for seconds, asked in ((0.0, 1), (0.1, 1), (ASK_SECONDS, 2), (ASK_SECONDS + 1, 2), (2 * ASK_SECONDS, 3)):
            server.now = seconds
            revocation.check(ADA)
            await answered()
            assert server.asked == ["Bearer one"] * asked

    watched(work)


@pytest.mark.parametrize("what", ["revoked", "narrowed"])
def test_what_holds_no_more_is_told_to_all_who_look(what: str) -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        revocation.check(ADA)
        await answered()
        server.now = ASK_SECONDS
        if what == "revoked":
            server.error = unproven()
        else:
            server.identity = Identity("ada", scopes(["read:lab"]))
        revocation.check(ADA)
        await answered()
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                revocation.check(ADA)
        # Granted again, it is good again.
        server.now, server.error, server.identity = 2 * ASK_SECONDS, None, ADA.identity
        with pytest.raises(Unauthenticated):
            revocation.check(ADA)
        await answered()
        revocation.check(ADA)

    watched(work)


@pytest.mark.parametrize("how", ["away", "silent"])
def test_a_server_that_says_nothing_is_believed_for_so_long(how: str) -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        server.error = TransportError("nobody there")
        if how == "silent":
            server.gate.clear()
        while server.now <= SILENT_SECONDS:
            revocation.check(ADA)
            await answered()
            server.now += ASK_SECONDS
        with pytest.raises(TransportError, match="the server behind does not say whether this still holds"):
            revocation.check(ADA)
        assert len(server.asked) == (SILENT_SECONDS / ASK_SECONDS + 1 if how == "away" else 1)
        server.error = None
        server.gate.set()
        server.now += ASK_SECONDS
        with pytest.raises(TransportError):
            revocation.check(ADA)
        await answered()
        revocation.check(ADA)

    watched(work)


@pytest.mark.parametrize("last", [None, TransportError("nobody there")], ids=["answered", "away"])
def test_a_time_in_which_nothing_was_open_is_no_silence(last: FastFlightError | None) -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        server.error = last
        revocation.check(ADA)
        await answered()
        server.now, server.error = SILENT_SECONDS + 1, None
        for _ in range(2):
            revocation.check(ADA)
            await answered()
        assert len(server.asked) == 2

    watched(work)


def test_where_nobody_is_asked_nobody_is_put_out() -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        server.error = TransportError("nobody there")
        revocation.check(ANYONE)
        await answered()
        server.now = 2 * SILENT_SECONDS
        revocation.check(ANYONE)
        await answered()
        # But for a server that has begun to want a proof.
        server.error = unproven()
        server.now += ASK_SECONDS
        revocation.check(ANYONE)
        await answered()
        with pytest.raises(Unauthenticated):
            revocation.check(ANYONE)

    watched(work)


def test_those_of_whom_nothing_is_open_are_forgotten() -> None:
    async def work(server: Server, revocation: RevocationCheck) -> None:
        for number in range(3):
            revocation.check(Caller(ADA.identity, f"Bearer {number}"))
        await answered()
        server.now = SILENT_SECONDS + 1
        revocation.check(ADA)
        await answered()
        assert list(revocation._answers) == [ADA]

    watched(work)
