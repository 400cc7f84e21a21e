"""The files of boards for list_flights: listed once for all callers, until something may have changed them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import AsyncSession, Device, Inventory
from fastflight.sources.board_listings import UNHEARD_SECONDS, BoardListings
from tests.support.clock import ManualClock
from tests.support.printing_board import PrintingBoard
from tests.support.waiting import until

PRINTING = 40


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices whose boards were asked, in order."""
    names: list[str] = []
    real = AsyncSession.list

    def call(session: AsyncSession, *args: Any, **kwargs: Any) -> Any:
        names.append(session.name)
        return real(session, *args, **kwargs)

    monkeypatch.setattr(AsyncSession, "list", call)
    return names


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0"}) as inventory:
        yield inventory.device("demo")


def names(listings: BoardListings, device: Device) -> list[str]:
    ((_, entries, note),) = listings.list([device])
    assert note is None
    return [entry.path for entry in entries]


def test_a_listing_is_kept_for_a_moment(device: Device, listed: list[str]) -> None:
    clock = ManualClock()
    listings = BoardListings(clock)
    assert names(listings, device) == names(listings, device) == ["/a.csv"]
    assert listed == ["demo"]
    clock.now = UNHEARD_SECONDS
    names(listings, device)
    assert listed == ["demo"] * 2


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda session: session.write("/b.csv", [b"b"]), ["/a.csv", "/b.csv"]),
        (lambda session: session.rename("/a.csv", "/c.csv"), ["/c.csv"]),
        (lambda session: session.remove("/a.csv"), []),
        (lambda session: session.mkdir("/d"), ["/a.csv", "/d"]),
        (lambda session: session.exec("open('/e', 'w').close()"), ["/a.csv", "/e"]),
        (lambda session: list(session.follow("open('/e', 'w').close()")), ["/a.csv", "/e"]),
        (lambda session: session.write_tree("/d", [("e", [b"e"])]), ["/a.csv", "/d", "/d/e"]),
    ],
    ids=["write", "rename", "remove", "mkdir", "exec", "follow", "write_tree"],
)
def test_a_change_ends_it_at_once(device: Device, listed: list[str], change: Any, after: list[str]) -> None:
    listings = BoardListings(ManualClock())
    names(listings, device)
    with device.lease("a test") as session:
        change(session)
    assert names(listings, device) == after
    assert len(listed) == 2


def test_reading_does_not_end_it(device: Device, listed: list[str]) -> None:
    listings = BoardListings(ManualClock())
    names(listings, device)
    with device.lease("a test") as session:
        assert b"".join(session.read("/a.csv")) == b"a\n1\n"
    names(listings, device)
    assert listed == ["demo"]


def test_a_board_that_did_not_answer_is_not_asked_again_for_a_moment(
    device: Device, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are listed for each source of one call, and each would wait."""
    monkeypatch.setattr("fastflight.sources.board_listings.LEASE_SECONDS", 0.01)
    asked, lease = [], device.alease
    clock = ManualClock()
    listings = BoardListings(clock)
    with device.lease("a test"):
        monkeypatch.setattr(device, "alease", lambda *args, **keys: asked.append(args) or lease(*args, **keys))
        ((_, _, busy),) = listings.list([device])
        assert busy is not None and busy["busy"]
        assert list(listings.list([device])) == [(device, (), busy)] and len(asked) == 1
        clock.now = UNHEARD_SECONDS
        ((_, entries, again),) = listings.list([device])  # says for how long by now
        assert (entries, len(asked)) == ((), 2) and again is not None and again["busy"]
    assert names(listings, device) == ["/a.csv"] and listed == ["demo"]


def test_what_is_missing_is_said_until_the_files_are_listed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.sources.board_listings.LEASE_SECONDS", 0.01)
    clock = ManualClock()
    listings = BoardListings(clock)
    with device.lease("a test"):
        assert list(listings.list([device]))[0][1] == ()
        assert (
            listings.missing(device)["unlisted"].startswith("in use by a test") and len(listings.missing(device)) == 1
        )
    assert names(listings, device) == ["/a.csv"]
    assert listings.missing(device) == {}
    clock.now = 12.0
    with device.lease("a test"):
        ((_, entries, note),) = listings.list([device])
        assert [entry.path for entry in entries] == ["/a.csv"]
        assert note is not None and note["listed_seconds_ago"] == listings.missing(device)["listed_seconds_ago"] == 12.0


class Program(PrintingBoard):
    """A board whose program prints, and never reads its input."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = b""

    def tick(self) -> None:
        for connection in list(self.connections):
            self.print(connection, b"a line\n")

    def received(self, connection: object, data: bytes) -> None:
        self.asked += data


def test_boards_that_print_are_waited_for_together_and_those_that_answer_are_all_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with Program() as board:
        printing = [f"printing{number}" for number in range(PRINTING)]
        urls = dict.fromkeys(printing, f"socket://127.0.0.1:{board.port}")
        with Inventory({"quiet": f"sim:?files={tmp_path}&telemetry=0", **urls}) as inventory, ExitStack() as stack:
            listings, devices = BoardListings(ManualClock()), inventory.devices()
            for device in devices:
                stack.enter_context(device.listen())
            until(lambda: all(device.tap.heard_ns for device in devices if device.name != "quiet"))
            found = {
                device.name: ([entry.path for entry in entries], note)
                for device, entries, note in listings.list(devices)
            }
            assert found.pop("quiet") == (["/a.csv"], None)
            assert [*found] == printing and all(entries == [] and note for entries, note in found.values())
            until(lambda: all(device.is_deaf for device in devices if device.name != "quiet"))
            asked = board.asked
            again = BoardListings(ManualClock())
            assert {device.name for device, entries, _ in again.list(devices) if entries} == {"quiet"}
            assert "a program is running" in again.missing(devices[-1])["unlisted"]
            assert board.asked == asked, "they have not answered before, so nobody asks them"


def test_callers_at_the_same_time_share_one_listing(device: Device, listed: list[str]) -> None:
    listings = BoardListings(ManualClock())
    callers = 20
    with ThreadPoolExecutor(callers) as pool:
        with device.lease("a test"):
            waiting = [pool.submit(names, listings, device) for _ in range(callers)]
            until(lambda: device in listings._running)
        assert [each.result() for each in waiting] == [["/a.csv"]] * callers
    assert listed == ["demo"]
