"""A device behind a bridge: one holder at a time, the events that it gets, and the reports of a lost line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fastflight.bridge import DeviceFront
from fastflight.device import Inventory
from fastflight.errors import BusyError, TransportClosed, TransportError
from tests.support.refusals import refused


class FrontWatcher:
    """Who holds a line, and what it is told."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[str] = []
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def line_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.news.set()


async def hold(front: DeviceFront) -> None:
    async with front.hold("a tool", FrontWatcher()):
        pass


@asynccontextmanager
async def device() -> AsyncIterator[tuple[DeviceFront, socket.socket]]:
    """A device of a server, and where its board is to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with Inventory({"demo": f"socket://127.0.0.1:{listener.getsockname()[1]}"}) as inventory:
            yield DeviceFront(inventory.device("demo")), listener


async def test_a_device_that_is_lost_ends_its_holder_and_is_opened_for_the_next_one() -> None:
    loop = asyncio.get_running_loop()
    async with device() as (front, listener):
        for words in (b"first life", b"second life"):
            watcher = FrontWatcher()
            with pytest.raises(TransportClosed):
                async with front.hold("a tool", watcher) as channel:
                    board, _ = await loop.sock_accept(listener)
                    with board:
                        await channel.write(b"hello")
                        assert await loop.sock_recv(board, 100) == b"hello"
                        await loop.sock_sendall(board, words)
                        await watcher.news.wait()
                        watcher.news.clear()
                    await watcher.news.wait()
            assert watcher.heard == words
            assert len(watcher.lost) == 1


async def test_it_is_told_when_a_device_is_lost_and_when_it_is_back_but_not_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastflight.device.listening.FIRST_RETRY_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with device() as (front, listener):
        running = asyncio.create_task(front.run(changes.put_nowait))
        for turn in range(3):  # its line is opened, and opened again, whether or not a client comes
            with (await loop.sock_accept(listener))[0]:
                assert turn == 0 or await changes.get() == ""
            assert await changes.get() == "the device closed the line"
        running.cancel()
        await asyncio.wait({running})


async def test_a_paused_device_says_nothing_until_it_may() -> None:
    loop = asyncio.get_running_loop()
    async with device() as (front, listener):
        watcher = FrontWatcher()
        async with front.hold("a tool", watcher) as channel:
            board, _ = await loop.sock_accept(listener)
            with board:
                channel.pause()
                await loop.sock_sendall(board, b"patience")
                await channel.write(b"?")
                assert await loop.sock_recv(board, 1) == b"?"
                assert watcher.heard == b""
                channel.resume()
                await watcher.news.wait()
                assert watcher.heard == b"patience"


async def test_a_device_that_cannot_be_opened_is_refused_with_the_reason() -> None:
    async with device() as (front, listener):
        listener.close()
        with pytest.raises(TransportError, match="demo: cannot connect"):
            await hold(front)


async def test_a_device_that_a_request_has_is_refused_with_its_name() -> None:
    async with device() as (front, _), front._device.aline("reading /a.csv"):
        with refused(BusyError, where="demo", holder="reading /a.csv"):
            await hold(front)
