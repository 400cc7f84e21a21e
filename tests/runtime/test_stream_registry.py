"""The streams and calls of a server: what is under way."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastflight.concurrency import Shard, off_loop
from fastflight.errors import ResourceExhausted, Stopped
from fastflight.runtime.admission import Limits
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.resolve import ResolvedRequest
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.waiting import auntil

SOON = 60.0


def test_a_call_has_its_place_until_its_thread_has_ended_though_its_client_has_left() -> None:
    """Else one that asks and leaves, again and again, has as many threads as it likes."""
    registry = StreamRegistry(Limits(calls=1, waiting=0))
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(SOON)

    async def call() -> None:
        async with registry.acall("device.info", "demo", lambda: "me") as until_done:
            await off_loop(until_done(work))

    async def run() -> None:
        calling = asyncio.create_task(call())
        assert await asyncio.to_thread(begun.wait, SOON)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert registry.stats()["calls"] == 1
        with pytest.raises(ResourceExhausted):
            await call()
        go_on.set()
        await auntil(lambda: not registry.stats()["calls"])
        await call()

    with Shard("shard") as shard:
        shard.submit(asyncio.wait_for(run(), SOON)).result(SOON)
    assert registry.stats()["calls"] == 0


def test_a_connection_is_not_alone_while_a_call_on_it_waits_to_be_admitted() -> None:
    """To cut it for the sake of its stream would cut off the call as well."""
    registry = StreamRegistry(Limits(calls=1, wait_seconds=SOON))
    asked = ResolvedRequest.with_(Mock(), mock.SOURCE)
    here = "ipv4:127.0.0.1:40000"
    stream = registry.open(asked, lambda: False, lambda: "me", here)
    assert stream.has_connection_alone
    waits, go_on = threading.Event(), threading.Event()

    def left() -> bool:
        waits.set()
        return go_on.is_set()

    def call() -> None:
        with pytest.raises(Stopped), registry.call("devices", None, left, lambda: "me", here):
            pass

    with registry.call("device.info", "demo", lambda: False, lambda: "somebody", "ipv4:127.0.0.1:50000"):
        calling = threading.Thread(target=call)
        calling.start()
        assert waits.wait(SOON)
        assert not stream.has_connection_alone
        go_on.set()
        calling.join(SOON)
    assert stream.has_connection_alone
    stream.close("finished")


def test_a_connection_is_not_alone_while_another_stream_of_it_waits_to_be_admitted() -> None:
    registry = StreamRegistry(Limits(streams=1, wait_seconds=SOON))
    asked = ResolvedRequest.with_(Mock(), mock.SOURCE)
    here = "ipv4:127.0.0.1:40000"
    stream = registry.open(asked, lambda: False, lambda: "me", here)
    waits, go_on = threading.Event(), threading.Event()

    def left() -> bool:
        waits.set()
        return go_on.is_set()

    def wait() -> None:
        with pytest.raises(Stopped):
            registry.open(asked, left, lambda: "me", here)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(SOON)
    assert not stream.has_connection_alone
    go_on.set()
    waiting.join(SOON)
    stream.close("finished")
