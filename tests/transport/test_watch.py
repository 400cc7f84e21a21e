"""A watch waits for a descriptor, and keeps what it took until somebody has it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVarTuple, Unpack

import pytest

from fastflight.concurrency.loops import KINDS, run_on_loop
from fastflight.transport.watch import TURN_READS, Watch

PATIENCE = 20.0

Arguments = TypeVarTuple("Arguments")


class Counting(asyncio.SelectorEventLoop):
    """A loop that counts how often it is told to watch for bytes, and how often it wakes for them."""

    watches = 0
    wakes = 0

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Arguments]], Any], *args: *Arguments) -> None:
        def woken() -> None:
            self.wakes += 1
            callback(*args)

        self.watches += 1
        super().add_reader(fd, woken)


class WatchedLine:
    """Two ends, and a watch on `ours`."""

    def __init__(self) -> None:
        self.ours, self.theirs = self.ends()
        self.ours.setblocking(False)
        self.taken: list[bytes] = []
        self.on_taking: Callable[[], object] = lambda: None
        self.watch = Watch(self.ours.fileno(), self._take)

    def ends(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair()

    def _take(self) -> bytes:
        self.taken.append(self.ours.recv(100))
        self.on_taking()
        return self.taken[-1]


@pytest.fixture
def line() -> Iterator[WatchedLine]:
    made = WatchedLine()
    yield made
    made.watch.end()
    made.ours.close()
    made.theirs.close()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=Counting) as running:
        yield running


def counting(runner: asyncio.Runner) -> Counting:
    loop = runner.get_loop()
    assert isinstance(loop, Counting)
    return loop


async def answered(line: WatchedLine, answer: bytes) -> bytes:
    """What a reader gets that waits when `answer` comes."""
    reading = asyncio.ensure_future(line.watch.read(PATIENCE))
    await asyncio.sleep(0)
    line.theirs.send(answer)
    return await reading


def test_one_watch_serves_many_waits(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        for number in range(100):
            assert await answered(line, b"%d" % number) == b"%d" % number

    runner.run(main())
    assert (counting(runner).watches, counting(runner).wakes) == (1, 100)


def test_what_is_there_is_taken_without_a_watch(line: WatchedLine, runner: asyncio.Runner) -> None:
    line.theirs.send(b"there")
    assert runner.run(line.watch.read(PATIENCE)) == b"there"
    assert counting(runner).watches == 0


def test_bytes_that_nobody_waits_for_wake_the_loop_once_and_stay(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        await answered(line, b"awaited")
        loop = counting(runner)
        before = loop.wakes
        line.theirs.send(b"not awaited")
        for _ in range(10):
            await asyncio.sleep(0)
        assert loop.wakes == before + 1
        assert line.taken == [b"awaited"]
        assert await line.watch.read(PATIENCE) == b"not awaited"
        assert await answered(line, b"more") == b"more"

    runner.run(main())


def test_a_reader_that_is_cancelled_as_bytes_are_taken_leaves_them(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def cancelled() -> None:
        reading = asyncio.ensure_future(line.watch.read(PATIENCE))
        # Before the reader has its turn, which it gets for the bytes.
        line.on_taking = lambda: asyncio.get_running_loop().call_soon(reading.cancel)
        await asyncio.sleep(0)
        line.theirs.send(b"taken")
        with pytest.raises(asyncio.CancelledError):
            await reading

    runner.run(cancelled())
    assert line.watch.unread() == b"taken"
    assert line.watch.unread() is None
    runner.run(cancelled())
    assert runner.run(line.watch.read(PATIENCE)) == b"taken"
    assert line.taken == [b"taken", b"taken"]


def test_a_stream_without_end_leaves_the_loop_its_turns(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> int:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        turn()
        for _ in range(3 * TURN_READS):
            line.theirs.send(b"more")
            assert await line.watch.read(PATIENCE) == b"more"
        return turns

    assert runner.run(main()) > 2


def test_silence_is_a_timeout_and_the_watch_goes_on(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> bytes:
        with pytest.raises(TimeoutError):
            await line.watch.read(0)
        return await answered(line, b"late")

    assert runner.run(main()) == b"late"
    assert counting(runner).watches == 1


def test_what_reading_raises_reaches_the_reader(runner: asyncio.Runner) -> None:
    ours, theirs = socket.socketpair()

    def take() -> bytes:
        if ours.recv(1):
            raise ConnectionResetError
        return b""

    ours.setblocking(False)
    watch = Watch(ours.fileno(), take)

    async def main() -> None:
        reading = asyncio.ensure_future(watch.read(PATIENCE))
        await asyncio.sleep(0)
        theirs.send(b"!")
        with pytest.raises(ConnectionResetError):
            await reading
        theirs.close()
        assert await watch.read(PATIENCE) == b""
        watch.end()

    runner.run(main())
    ours.close()


def fill(end: socket.socket) -> None:
    while True:
        try:
            end.send(bytes(65536))
        except BlockingIOError:
            return


def test_room_comes_when_the_other_end_reads(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        fill(line.ours)
        with pytest.raises(TimeoutError):
            await line.watch.room(0)
        waiting = asyncio.ensure_future(line.watch.room(PATIENCE))
        await asyncio.sleep(0)
        assert not waiting.done()
        line.theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                line.theirs.recv(65536)
        await waiting
        assert not asyncio.get_running_loop().remove_writer(line.ours)

    runner.run(main())


def test_its_end_leaves_nothing_on_the_loop_and_wakes_those_that_wait(
    line: WatchedLine, runner: asyncio.Runner
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fill(line.ours)
        waiting = asyncio.ensure_future(line.watch.room(PATIENCE))
        await answered(line, b"watched")
        await asyncio.to_thread(line.watch.end)
        await waiting
        assert not loop.remove_reader(line.ours)
        assert not loop.remove_writer(line.ours)

    runner.run(main())


def test_its_end_after_its_loop_is_nothing(line: WatchedLine) -> None:
    asyncio.run(answered(line, b"watched"))
    line.watch.end()
    assert asyncio.run(answered(line, b"again")) == b"again"


def test_carrying_out_on_a_loop_that_stands_still_is_done_here() -> None:
    loop = asyncio.new_event_loop()
    done: list[bool] = []
    run_on_loop(loop, lambda: done.append(True))
    loop.close()
    run_on_loop(loop, lambda: done.append(True))
    assert done == [True, True]


def test_what_is_to_run_with_room_or_later_runs_once_and_not_after_the_end(
    line: WatchedLine, runner: asyncio.Runner
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: asyncio.Queue[str] = asyncio.Queue()
        line.watch.call_with_room(lambda: calls.put_nowait("room"))
        line.watch.call_later(0, lambda: calls.put_nowait("later"))
        assert {await calls.get(), await calls.get()} == {"room", "later"}
        line.watch.call_with_room(lambda: calls.put_nowait("never"))
        line.watch.call_later(0, lambda: calls.put_nowait("never"))
        line.watch.end()
        assert not loop.remove_writer(line.ours)
        for _ in range(3):
            await asyncio.sleep(0)
        assert calls.empty()

    runner.run(main())


def test_another_descriptor_ends_the_waits_that_began_before_it_was_forgotten(
    line: WatchedLine, runner: asyncio.Runner
) -> None:
    ended, end = os.pipe()
    also: tuple[int, ...] = (ended,)
    watch = Watch(line.ours.fileno(), line._take, for_threads=True, extra=lambda: also)

    async def main() -> None:
        nonlocal also
        fill(line.ours)
        waits = [asyncio.ensure_future(each) for each in (watch.read(PATIENCE), watch.room(PATIENCE))]
        await asyncio.sleep(0)
        also = ()
        os.write(end, b"x")
        for each in waits:
            with pytest.raises(TimeoutError):
                await each
        reading = asyncio.ensure_future(watch.read(PATIENCE))
        await asyncio.sleep(0)
        line.theirs.send(b"last words")
        assert await reading == b"last words"

    runner.run(main())
    also = (ended,)
    with pytest.raises(TimeoutError):
        watch.read_blocking(PATIENCE)
    watch.close()
    os.close(ended)
    os.close(end)


def test_once_closed_it_registers_nothing_any_more(line: WatchedLine, runner: asyncio.Runner) -> None:
    line.watch.close()
    for wait in (line.watch.room, line.watch.read):
        with pytest.raises(OSError, match="closed"):
            runner.run(wait(PATIENCE))
    assert counting(runner).watches == 0


def test_what_is_poured_wakes_no_reader_and_arrives_in_order(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        given: asyncio.Queue[bytes] = asyncio.Queue()
        line.theirs.send(b"before")
        pouring = asyncio.ensure_future(line.watch.pour(given.put_nowait))
        assert await given.get() == b"before"
        for number in range(100):
            line.theirs.send(b"%d" % number)
            assert await given.get() == b"%d" % number
        line.theirs.close()
        await pouring

    runner.run(main())
    assert counting(runner).watches == 1


def test_pouring_that_is_cancelled_takes_nothing_more(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        given: asyncio.Queue[bytes] = asyncio.Queue()
        pouring = asyncio.ensure_future(line.watch.pour(given.put_nowait))
        await asyncio.sleep(0)
        line.theirs.send(b"poured")
        assert await given.get() == b"poured"
        pouring.cancel()
        line.theirs.send(b"left")
        with pytest.raises(asyncio.CancelledError):
            await pouring
        assert await line.watch.read(PATIENCE) == b"left"
        assert given.empty()

    runner.run(main())


def test_pouring_fails_as_reading_does(line: WatchedLine, runner: asyncio.Runner) -> None:
    async def main() -> None:
        pouring = asyncio.ensure_future(line.watch.pour(print))
        await asyncio.sleep(0)
        line.on_taking = lambda: (_ for _ in ()).throw(OSError("broken"))
        line.theirs.send(b"any")
        with pytest.raises(OSError, match="broken"):
            await pouring

    runner.run(main())


class Cut(WatchedLine):
    """A connection whose other end, closed, resets it right behind what it sent."""

    def ends(self) -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return ours, theirs

    def cut(self, sent: bytes) -> None:
        self.theirs.send(sent)
        self.theirs.close()


@pytest.fixture
def connection() -> Iterator[Cut]:
    made = Cut()
    yield made
    made.watch.end()
    made.ours.close()
    made.theirs.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["read", "pour"])
def test_a_reset_behind_more_than_one_turn_of_bytes_is_told(connection: Cut, kind: str, way: str) -> None:
    """libuv tells of an error once, and then no more: what it is behind has to be taken without its telling."""
    sent = bytes(range(256)) * 100

    async def read(watch: Watch, give: Callable[[bytes], object]) -> None:
        while data := await watch.read(PATIENCE):
            give(data)

    async def main() -> bytearray:
        got = bytearray()
        reading = asyncio.ensure_future({"read": read, "pour": Watch.pour}[way](connection.watch, got.extend))
        await asyncio.sleep(0)
        connection.cut(sent)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reading, PATIENCE)
        return got

    with asyncio.Runner(loop_factory=KINDS[kind]) as running:
        assert running.run(main()) == sent
