"""The files of boards for list_flights: listed once for all callers, until something may have changed them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import Device, Inventory, Session
from fastflight.sources.board_listings import MAX_THREADS, UNHEARD_SECONDS, BoardListings
from tests.support.waiting import until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices whose boards were asked, in order."""
    names: list[str] = []
    real = Session.list

    def call(session: Session, *args: Any, **kwargs: Any) -> Any:
        names.append(session.name)
        return real(session, *args, **kwargs)

    monkeypatch.setattr(Session, "list", call)
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
    clock = Clock()
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
    listings = BoardListings(Clock())
    names(listings, device)
    with device.lease("a test") as session:
        change(session)
    assert names(listings, device) == after
    assert len(listed) == 2


def test_reading_does_not_end_it(device: Device, listed: list[str]) -> None:
    listings = BoardListings(Clock())
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
    asked, lease = [], device.lease
    clock = Clock()
    listings = BoardListings(clock)
    with device.lease("a test"):
        monkeypatch.setattr(device, "lease", lambda *args, **keys: asked.append(args) or lease(*args, **keys))
        ((_, _, busy),) = listings.list([device])
        assert busy is not None and busy["busy"]
        assert list(listings.list([device])) == [(device, (), busy)] and len(asked) == 1
        clock.now = UNHEARD_SECONDS
        ((_, entries, again),) = listings.list([device])  # says for how long by now
        assert (entries, len(asked)) == ((), 2) and again is not None and again["busy"]
    assert names(listings, device) == ["/a.csv"] and listed == ["demo"]


def test_callers_at_the_same_time_share_one_listing(device: Device, listed: list[str]) -> None:
    listings = BoardListings(Clock())
    callers = 2 * MAX_THREADS
    with ThreadPoolExecutor(callers) as pool:
        with device.lease("a test"):
            waiting = [pool.submit(names, listings, device) for _ in range(callers)]
            until(lambda: listings._callers == callers)
            threads = [each.name for each in threading.enumerate() if each.name.startswith("listing")]
            assert len(threads) == 1
        assert [each.result() for each in waiting] == [["/a.csv"]] * callers
    assert listed == ["demo"]
