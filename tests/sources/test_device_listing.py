"""Listings that were just read, and everything that makes them stale."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.service.requests import DeviceListing, DeviceSession
from fastflight.sources.board_listings import UNHEARD_SECONDS, BoardListings
from fastflight.sources.device_listing import DeviceListings
from fastflight.sources.device_session import DeviceSessions
from tests.support.source_items import aitems, items
from tests.support.waiting import ByteReader


class Listed:
    """A simulated board with one file, its listings, and the time."""

    def __init__(self, folder: Path, inventory: Inventory) -> None:
        self.folder = folder
        self.device = inventory.device("demo")
        self.now = 0.0
        self.listings = DeviceListings(inventory, BoardListings(lambda: self.now))

    def ask(self, mode: str, *, path: str = "/", interrupt: bool = False) -> tuple[set[str], bool]:
        """The names in a folder, and whether the listing was kept."""
        request = DeviceListing(device="demo", path=path, interrupt=interrupt)
        if mode == "sync":
            reading = self.listings.read(request)
            batches = items(reading)
            return set(batches[0]["path"].to_pylist()), "kept" in reading.summary()

        async def read() -> tuple[set[str], bool]:
            reading = await self.listings.aread(request)
            batches = await aitems(reading)
            return set(batches[0]["path"].to_pylist()), "kept" in reading.summary()

        return asyncio.run(read())


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Listed]:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    with (
        Shards(1) as shards,
        Inventory({"demo": f"sim:?files={folder}&telemetry=0"}, shards=shards) as inventory,
    ):
        yield Listed(folder, inventory)


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_listing_is_given_again_for_a_moment(listed: Listed, mode: str) -> None:
    assert listed.ask(mode) == ({"/a.txt"}, False)
    assert listed.ask(mode) == ({"/a.txt"}, True)
    assert listed.ask(mode, interrupt=True) == ({"/a.txt"}, False)
    assert listed.ask(mode) == ({"/a.txt"}, True)
    with listed.device.listen():
        assert listed.ask(mode) == ({"/a.txt"}, True)
    listed.now += UNHEARD_SECONDS
    assert listed.ask(mode) == ({"/a.txt"}, False)


def bare_line(device: Device) -> None:
    with device.line("a tool") as port:
        asyncio.run(port.awrite(b"open('/b.txt', 'w').close()\r", 5))
        line = ByteReader(lambda: asyncio.run(port.aread(5)))
        line.read_until(b"close()")
        line.read_until(b">>> ")


def test_what_a_tool_does_at_the_bare_line_is_seen_at_once(listed: Listed, mode: str) -> None:
    listed.ask(mode)
    bare_line(listed.device)
    now = {f"/{path.name}" for path in listed.folder.iterdir()}
    assert now != {"/a.txt"}
    assert listed.ask(mode) == (now, False)


def test_a_board_that_leaves_during_a_listing_of_sessions_does_not_end_it() -> None:
    with Inventory({"a": "socket://127.0.0.1:9", "b": "socket://127.0.0.1:9"}) as inventory:
        flights = DeviceSessions(inventory).requests(lambda name: True)
        assert next(flights)[0] == DeviceSession(device="a")
        inventory.remove("b").close()
        assert [request.device for request, _ in flights] == ["b"]  # its name had been taken already
