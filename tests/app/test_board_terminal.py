"""A terminal that holds a board's line: what is sent when it gives the line back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from fastflight.app.board_terminal import BoardTerminal
from fastflight.concurrency import Shard
from fastflight.concurrency.portal import Portal
from fastflight.device import Device
from fastflight.device.held_line import WRITE_BYTES
from fastflight.errors import TransportClosed, TransportError
from fastflight.transport.tap import Tap

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


class Held:
    """A device whose line is `port`."""

    def __init__(self, port: SlowPort) -> None:
        self.tap = Tap()
        self._port = port

    @contextmanager
    def line(self, holder: str) -> Iterator[SlowPort]:
        yield self._port


def terminal(port: SlowPort) -> BoardTerminal:
    return BoardTerminal(cast(Device, Held(port)))


def test_what_is_being_sent_when_it_is_given_back_is_broken_off(port: SlowPort) -> None:
    """A client that leaves does not keep the device for as long as the line takes for what it pasted."""
    broke = threading.Event()
    held = terminal(port)

    def send() -> None:
        with pytest.raises(TransportError, match="given back"):
            held.send(bytes(100 * WRITE_BYTES))
        broke.set()

    sending = threading.Thread(target=send)
    sending.start()
    assert port.asked.wait(SOON)
    held.settle()
    assert broke.wait(SOON)
    sending.join()
    with pytest.raises(TransportError, match="given back"):
        held.send(b"more")
    assert len(port.taken) == WRITE_BYTES
    assert held.receive() is None


def test_what_is_sent_whole_is_said_to_be(port: SlowPort) -> None:
    port.portal.post(port.may.set)
    held = terminal(port)
    held.send(bytes(3 * WRITE_BYTES))
    assert len(port.taken) == 3 * WRITE_BYTES
    held.settle()


def test_a_failure_is_raised_by_each_later_write_and_by_the_reader(port: SlowPort) -> None:
    port.portal.post(port.may.set)

    async def fail(timeout: float) -> None:
        raise TransportError("unplugged")

    port.adrain = fail  # type: ignore[method-assign]
    held = terminal(port)
    for _ in range(2):
        with pytest.raises(TransportError, match="unplugged"):
            held.send(b"data")
    with pytest.raises(TransportClosed, match="unplugged"):
        held.receive()
    held.settle()
