"""A line that is held to write to it: what is sent when it is given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from fastflight.concurrency import Shard
from fastflight.concurrency.portal import Portal
from fastflight.device.held_line import WRITE_BYTES, LineThread
from fastflight.errors import TransportError
from fastflight.transport.tapped import TappedPort

SOON = 20.0


class SlowPort:
    """One that takes a piece when it `may`, and says nothing."""

    def __init__(self, shard: Shard) -> None:
        self.portal = Portal(shard.loop, RuntimeError)
        self.taken = b""
        self.asked, self.may = threading.Event(), asyncio.Event()

    async def awrite(self, data: bytes, timeout: float) -> None:
        self.taken += data
        self.asked.set()
        await self.may.wait()

    async def adrain(self, timeout: float) -> None: ...

    async def alisten(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def port() -> Iterator[SlowPort]:
    with Shard() as shard:
        yield SlowPort(shard)


def held(port: SlowPort, on_failure: Callable[[TransportError], None]) -> LineThread:
    return LineThread(cast(TappedPort, port), on_failure)


def test_what_is_being_sent_when_it_is_given_back_is_broken_off(port: SlowPort) -> None:
    """A client that leaves does not keep the device for as long as the line takes for what it pasted."""
    broke, lost = threading.Event(), list[TransportError]()
    with held(port, lost.append) as line:

        def send() -> None:
            with pytest.raises(TransportError, match="given back"):
                line.send(bytes(100 * WRITE_BYTES))
            broke.set()

        sending = threading.Thread(target=send)
        sending.start()
        assert port.asked.wait(SOON)
        line.give_back()
        assert broke.wait(SOON)
        sending.join()
        with pytest.raises(TransportError, match="given back"):
            line.send(b"more")
    assert len(port.taken) == WRITE_BYTES
    assert lost == [] and line.failure is None


def test_what_is_sent_whole_is_said_to_be(port: SlowPort) -> None:
    port.portal.post(port.may.set)
    with held(port, lambda error: None) as line:
        line.send(bytes(3 * WRITE_BYTES))
        assert len(port.taken) == 3 * WRITE_BYTES


def test_a_failure_is_reported_once_and_raised_by_each_later_write(port: SlowPort) -> None:
    lost = list[TransportError]()
    port.portal.post(port.may.set)

    async def fail(timeout: float) -> None:
        raise TransportError("unplugged")

    port.adrain = fail  # type: ignore[method-assign]
    with held(port, lost.append) as line:
        for _ in range(2):
            with pytest.raises(TransportError, match="unplugged"):
                line.send(b"data")
    assert lost == [line.failure]
