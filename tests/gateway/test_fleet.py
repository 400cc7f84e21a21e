"""The fleet as the page gets it: one message for all, whole ones for those that come, and none that wait for one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from fastflight.access.identity import Identity
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.errors import TransportError
from fastflight.gap import Gap
from fastflight.gateway.backend import Backend
from fastflight.gateway.page import fleet as module
from fastflight.gateway.page.fleet import DeviceOutput, Fleet
from fastflight.gateway.page.listeners import MAX_CHUNKS, SessionListener, session_listeners, tap_listeners
from fastflight.gateway.page.view import MAX_WAITING, PageViewer
from fastflight.sources.session_rows import line_lost
from fastflight.tables.columns import MAX_LINES
from fastflight.transport.chunk_buffer import Chunk

SECOND = 1_000_000_000
# For a board to leave its line on a busy computer.
SECONDS = 60.0


def test_a_listener_follows_the_name_of_its_device() -> None:
    """The device may be removed, and another one may get its name."""
    shards = Shards(1)
    with Inventory({"demo": "sim:?telemetry=20"}, shards=shards) as inventory, shards:
        with tap_listeners(inventory)("demo") as listener:
            for _ in range(2):
                while not listener.rest():
                    pass
                device = inventory.remove("demo")
                device.shard.submit(inventory.retire(device)).result(SECONDS)
                assert listener.rest() == ()
                inventory.add("demo", "sim:?telemetry=20")


class Board:
    """A backend with one device, and what the fleet hears of it."""

    def __init__(self) -> None:
        self.heard = SessionListener()
        self.failure: Exception | None = None
        # Whether the server has the device.
        self.there = True
        self.listeners = 0
        self.left = asyncio.Event()

    def check(self, caller: Identity) -> None:
        """Whoever looks may."""

    async def act(self, name: str, body: bytes, caller: Identity) -> list[Mapping[str, Any]]:
        if self.failure is not None:
            raise self.failure
        if not self.there:
            return []
        return [{"name": "demo", "url": "sim:", "open": True, "holder": None, "recording": None, "trouble": None}]

    @contextmanager
    def hear(self, device: str) -> Iterator[SessionListener]:
        assert device == "demo"
        self.listeners += 1
        try:
            yield self.heard
        finally:
            self.listeners -= 1
            self.left.set()

    def fleet(self) -> Fleet:
        return Fleet(cast(Backend, self), self.hear)


async def message(viewer: PageViewer, wanted: str = "devices") -> dict[str, Any]:
    """The next message that has something of the device, or of another key."""
    while True:
        text = await asyncio.wait_for(viewer.next(), 10)
        assert text is not None
        content: dict[str, Any] = json.loads(text)
        if content[wanted]:
            return content


def test_all_viewers_are_sent_the_same_text() -> None:
    async def look() -> None:
        board = Board()
        fleet = board.fleet()
        with fleet.viewed() as one, fleet.viewed() as other:
            texts = [(await one.next(), await other.next()) for _ in range(3)]
        assert all(first is second for first, second in texts)

    asyncio.run(look())


def test_points_come_once_and_a_viewer_that_comes_later_has_all() -> None:
    async def look() -> None:
        board = Board()
        fleet = board.fleet()
        with fleet.viewed() as viewer:
            known = await message(viewer)
            assert known["devices"]["demo"]["url"] == "sim:"
            board.heard.put(Chunk(0, 5_000_000, "rx", b'{"a": 1}\n'))
            board.heard.put(Chunk(1, 6_000_000, "tx", b"typed\n"))
            changed = (await message(viewer))["devices"]["demo"]
            assert changed["points"] == [[5, 1.0]]
            assert (changed["columns"], changed["rows"], changed["last"]) == (["a"], 1, 5)
            with fleet.viewed() as later:
                whole = await message(later)
                assert whole["type"] == "all"
                assert whole["devices"]["demo"]["points"] == [[5, 1.0]]

    asyncio.run(look())


def test_a_viewer_that_stalls_loses_messages_and_comes_back_whole() -> None:
    viewer = PageViewer()
    viewer.behind = False
    for number in range(MAX_WAITING + 1):
        viewer.offer(str(number))
    assert (viewer.behind, viewer.skipped) == (True, MAX_WAITING + 1)
    viewer.offer("whole")
    assert asyncio.run(viewer.next()) == "whole"


def test_a_server_that_does_not_answer_is_said_and_what_was_known_stays() -> None:
    async def look() -> None:
        board = Board()
        with board.fleet().viewed() as viewer:
            await message(viewer)
            board.failure = TransportError("cannot connect", where="grpc://127.0.0.1:1")
            assert "cannot connect" in (await message(viewer, "trouble"))["trouble"]
            board.failure = None
            while json.loads(str(await viewer.next()))["trouble"]:
                pass

    asyncio.run(look())


def heard_what_is_no_chunk(board: Board) -> None:
    board.heard.put(cast(Chunk, "not a chunk"))


def asked_in_vain(board: Board) -> None:
    board.failure = KeyError("name")


@pytest.mark.parametrize("unforeseen", [heard_what_is_no_chunk, asked_in_vain])
def test_viewers_are_ended_when_something_unforeseen_happens(unforeseen: Callable[[Board], None]) -> None:
    async def look() -> None:
        board = Board()
        with board.fleet().viewed() as viewer:
            await message(viewer)
            unforeseen(board)
            async with asyncio.timeout(10):
                while await viewer.next() is not None:
                    pass
        assert board.listeners == 0

    asyncio.run(look())


def test_nobody_is_heard_when_nobody_looks(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.0)

    async def look() -> None:
        board = Board()
        fleet = board.fleet()
        with fleet.viewed() as viewer:
            await message(viewer)
            assert board.listeners == 1
        await asyncio.wait_for(board.left.wait(), 10)
        assert board.listeners == 0
        with fleet.viewed() as viewer:
            assert (await message(viewer))["devices"]["demo"]["open"] is True

    asyncio.run(look())


def test_a_device_that_nobody_sees_any_more_is_no_longer_heard() -> None:
    async def look() -> None:
        board = Board()
        with board.fleet().viewed() as viewer:
            await message(viewer)
            assert board.listeners == 1
            board.there = False
            await asyncio.wait_for(board.left.wait(), 10)
            assert board.listeners == 0
            board.there = True
            await message(viewer)
            assert board.listeners == 1

    asyncio.run(look())


class Busy:
    """A backend whose sessions never end: how many there are, and the most there were."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.changed = asyncio.Event()

    def make_request(self, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        return keys

    @asynccontextmanager
    async def read(self, request: object) -> AsyncIterator[None]:
        self.open += 1
        self.most = max(self.most, self.open)
        self.changed.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.open -= 1
            self.changed.set()


def test_the_sessions_of_all_callers_share_one_limit_and_a_device_waits_for_its_turn() -> None:
    async def look() -> None:
        backend = Busy()
        room = asyncio.Semaphore(3)
        first, second = (session_listeners(cast(Backend, backend), room) for _ in range(2))
        with ExitStack() as early, ExitStack() as late:
            for number in range(3):
                early.enter_context(first(f"board{number}"))
            for number in range(2):
                late.enter_context(second(f"board{number}"))
            while backend.open < 3:
                await asyncio.wait_for(backend.changed.wait(), 10)
                backend.changed.clear()
            assert backend.most == 3
            early.close()
            while backend.open != 2:
                await asyncio.wait_for(backend.changed.wait(), 10)
                backend.changed.clear()
            assert backend.most == 3

    asyncio.run(asyncio.wait_for(look(), 10))


def test_a_device_is_late_by_its_own_pace() -> None:
    def late(chunks: Sequence[Chunk | Gap]) -> int:
        output = DeviceOutput()
        for chunk in chunks:
            output.feed([chunk])
        return int(output.values(0)["late"])

    assert late([Chunk(n, n * SECOND // 10, "rx", b"1\n") for n in range(50)]) == 3000
    assert 30_000 < late([Chunk(n, n * 60 * SECOND, "rx", b"1\n") for n in range(50)]) <= 180_000


def test_rows_per_second_are_said_once_there_is_something_to_measure() -> None:
    output = DeviceOutput()
    output.feed([Chunk(0, 0, "rx", b"1\n")])
    assert output.values(SECOND)["rate"] is None
    assert output.values(3 * SECOND)["rate"] == 0.3
    assert output.values(9 * SECOND)["rate"] == 0.0
    # The first rows may have come over a whole minute.
    output = DeviceOutput()
    output.feed([Chunk(n, n * SECOND // 10, "rx", b"1\n") for n in range(600)])
    assert output.values(60 * SECOND)["rate"] == 10.0


def test_rows_that_came_too_fast_are_thinned_evenly_and_counted() -> None:
    output = DeviceOutput(since_ns=SECOND)
    assert len(output.feed([Chunk(0, 0, "rx", b"1\n" * 90)])) == MAX_LINES
    assert output.values(0)["skipped"] == 0  # from before anybody looked
    points = output.feed([Chunk(1, 2 * SECOND, "rx", b"".join(b"%d\n" % n for n in range(90)))])
    assert [point[1] for point in points] == list(range(2, 90, 3))
    assert output.values(0)["skipped"] == 60


def test_what_was_missed_is_counted_listed_and_breaks_the_charts() -> None:
    output = DeviceOutput()
    points = output.feed([Chunk(0, 0, "rx", b"12"), Gap(1, 4), Chunk(5, SECOND, "rx", b"34\n")])
    assert points == [[1000], [1000, 34.0]]  # a point without values: the line of a chart ends there
    assert output.values(SECOND)["lost"] == 4
    (gap,) = output.values(SECOND)["gaps"]
    assert (gap["why"], gap["rows"]) == ("not read in time", 4)
    assert (gap["from"], gap["to"]) == ("1970-01-01T00:00:00+00:00", "1970-01-01T00:00:01+00:00")


def test_a_lost_line_is_listed_whether_a_tap_or_a_session_tells_of_it() -> None:
    again = Chunk(1, 3 * SECOND, "rx", b"2\n", "unplugged", unread=(SECOND, 2 * SECOND))
    told = line_lost(1, "unplugged", SECOND, 2 * SECOND)
    for items in ([again], [told, again._replace(unread=None)], [told, again]):
        output = DeviceOutput()
        output.feed([Chunk(0, 0, "rx", b"1\n")])
        assert output.feed(items) == [[3000], [3000, 2.0]]
        assert [Gap.of(each) for each in output.values(SECOND)["gaps"]] == [told]
        assert output.values(SECOND)["gaps"] == [told.details()] and output.lost == 0


def test_a_line_that_is_opened_first_has_lost_nothing_and_old_gaps_are_forgotten() -> None:
    output = DeviceOutput()
    output.feed([Chunk(0, SECOND, "rx", b"1\n", "opened", unread=(None, 0))])
    assert output.values(SECOND)["gaps"] == []
    for seq in range(1, 100, 2):
        output.feed([Gap(seq, seq)])
    assert [gap["first"] for gap in output.values(SECOND)["gaps"]] == [*range(81, 100, 2)]


def test_a_session_that_is_not_taken_becomes_a_gap() -> None:
    heard = SessionListener()
    for number in range(MAX_CHUNKS + 1):
        heard.put(Chunk(number, 0, "rx", b"x"))
    assert heard.rest() == [Gap(0, MAX_CHUNKS)]
    assert heard.rest() == []
