"""Getting at a line: while it is being opened, after it was lost, and where it belongs to a device of a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fastflight.bridge import DeviceFront, LineFront, State
from fastflight.device import Inventory
from fastflight.errors import BusyError, TransportClosed, TransportError
from tests.bridge.memory_line import MemoryLine
from tests.support.refusals import refused

Scene = Callable[[LineFront, MemoryLine], Awaitable[None]]


class FrontWatcher:
    """Who holds a line, and what it is told."""

    def __init__(self) -> None:
        self.heard = b""
        self.states: list[State] = []
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def state_changed(self, state: State) -> None:
        self.states.append(state)
        self.news.set()


class SlowLine(MemoryLine):
    """A line whose opening takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = asyncio.Event()

    async def run(self) -> None:
        self.tell(State("connecting"))
        await self.opening.wait()
        await super().run()


def act(line: Callable[[], MemoryLine], scene: Scene) -> None:
    async def run() -> None:
        device = line()
        front = LineFront(device)
        running = asyncio.create_task(front.run(lambda state: None))
        await asyncio.sleep(0)
        await scene(front, device)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())


async def hold(front: LineFront | DeviceFront) -> None:
    async with front.hold("a tool", FrontWatcher()):
        pass


def test_who_comes_while_the_line_is_being_opened_waits_for_that() -> None:
    async def scene(front: LineFront, line: MemoryLine) -> None:
        assert isinstance(line, SlowLine)
        holding = asyncio.create_task(hold(front))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await hold(front)
        assert not holding.done()
        line.opening.set()
        await holding

    act(SlowLine, scene)


def test_who_comes_while_the_line_is_lost_has_it_tried_at_once() -> None:
    async def scene(front: LineFront, line: MemoryLine) -> None:
        line.tell(State("lost", "unplugged"))
        with pytest.raises(TransportClosed, match="the device is not there: unplugged"):
            await hold(front)
        assert line.retried == 1

    act(MemoryLine, scene)


def test_what_nobody_holds_the_line_for_is_seen_by_those_that_watch() -> None:
    async def scene(front: LineFront, line: MemoryLine) -> None:
        with front.watch() as reader:
            line.say(b"to whom it may concern")
            assert [item.data for item in await reader.atake(None)] == [b"to whom it may concern"]  # type: ignore[union-attr]

    act(MemoryLine, scene)


@asynccontextmanager
async def device() -> AsyncIterator[tuple[DeviceFront, socket.socket]]:
    """A device of a server, and where its board is to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with Inventory({"demo": f"socket://127.0.0.1:{listener.getsockname()[1]}"}) as inventory:
            yield DeviceFront(inventory.device("demo")), listener


def test_a_device_that_is_lost_ends_its_holder_and_is_opened_for_the_next_one() -> None:
    async def run() -> None:
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
                assert [state.phase for state in watcher.states] == ["lost"]

    asyncio.run(run())


def test_it_is_told_when_a_device_is_lost_and_when_it_is_back_but_not_at_first() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        states: asyncio.Queue[State] = asyncio.Queue()
        async with device() as (front, listener):
            running = asyncio.create_task(front.run(states.put_nowait))
            for phases in (["lost"], ["open", "lost"]):
                watcher = FrontWatcher()
                with pytest.raises(TransportClosed):
                    async with front.hold("a tool", watcher):
                        board, _ = await loop.sock_accept(listener)
                        board.close()
                        await watcher.news.wait()
                assert [(await states.get()).phase for _ in phases] == phases
            assert states.empty()
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(run())


def test_a_paused_device_says_nothing_until_it_may() -> None:
    async def run() -> None:
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

    asyncio.run(run())


def test_a_device_that_cannot_be_opened_is_refused_with_the_reason() -> None:
    async def run() -> None:
        async with device() as (front, listener):
            listener.close()
            with pytest.raises(TransportError, match="demo: cannot connect"):
                await hold(front)

    asyncio.run(run())


def test_a_device_that_a_request_has_is_refused_with_its_name() -> None:
    async def run() -> None:
        async with device() as (front, _), front._device.aline("reading /a.csv"):
            with refused(BusyError, where="demo", holder="reading /a.csv"):
                await hold(front)

    asyncio.run(run())
