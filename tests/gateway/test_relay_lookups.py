"""Lookups of names: few at a time, and none of them gives its place away before it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from fastflight.gateway.relay.lookups import MAX_LOOKUPS, Lookups


class Network:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        await self.answer.wait()
        if name.startswith("gone"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["192.0.2.1"]


async def idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_client_has_few_at_a_time_and_all_together_have_few() -> None:
    async def work() -> None:
        network = Network()
        lookups = Lookups(network)
        asking = [
            asyncio.ensure_future(lookups.addresses(f"{number}-{index}", client))
            for number, client in enumerate(("one", "two", "three"))
            for index in range(5)
        ]
        await idle()
        assert network.asked == ["0-0", "0-1", "1-0", "1-1"] and len(network.asked) == MAX_LOOKUPS
        network.answer.set()
        assert await asyncio.gather(*asking) == [["192.0.2.1"]] * 15

    asyncio.run(work())


def test_who_gives_up_waiting_does_not_give_the_place_away() -> None:
    async def work() -> None:
        network, client = Network(), "one"
        lookups = Lookups(network)
        for number in range(20):
            asking = asyncio.ensure_future(lookups.addresses(f"gone-{number}", client))
            await idle()
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        assert network.asked == ["gone-0", "gone-1"]
        network.answer.set()
        await idle()
        assert await lookups.addresses("there", client) == ["192.0.2.1"]
        with pytest.raises(OSError, match="not known"):
            await lookups.addresses("gone", client)
        assert await asyncio.gather(*(lookups.addresses("there", client) for _ in range(9)))

    asyncio.run(work())
