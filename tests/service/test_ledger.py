"""The streams and calls of a server: what is under way."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastflight.concurrency import Shard, off_loop
from fastflight.errors import ResourceExhausted
from fastflight.service.admission import Limits
from fastflight.service.ledger import Ledger

SOON = 20.0


def test_a_call_has_its_place_until_its_thread_has_ended_though_its_client_has_left() -> None:
    """Else one that asks and leaves, again and again, has as many threads as it likes."""
    ledger = Ledger(Limits(calls=1, waiting=0))
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(SOON)

    async def call() -> None:
        async with ledger.acall("device.info", "demo", lambda: "me") as until_done:
            await off_loop(until_done(work))

    async def run() -> None:
        calling = asyncio.create_task(call())
        assert await asyncio.to_thread(begun.wait, SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ledger.stats()["calls"] == 1
        with pytest.raises(ResourceExhausted):
            await call()
        go_on.set()
        while ledger.stats()["calls"]:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)
        await call()

    with Shard("shard") as shard:
        shard.submit(asyncio.wait_for(run(), SOON)).result(SOON)
    assert ledger.stats()["calls"] == 0
