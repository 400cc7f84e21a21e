"""The recordings of a fleet: rows that come twice or late, and logs of several servers as one recording."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.fleet_copy import FleetCopy, merged
from fastflight.cluster.shipment import Run
from fastflight.errors import StorageFull
from fastflight.log import Gap, NumberedRows, Store
from tests.cluster.shipments import shipment
from tests.log.disks import FailingDisk
from tests.log.rows import batch_of, checked, missing, numbers

# What a server has recorded of a device: lengths of rows, and of what is missing between them.
USES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from("ab")), max_size=8)


def test_rows_that_come_twice_are_there_once(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        copy = FleetCopy(store)
        for first, length in ((0, 5), (0, 5), (3, 4), (1, 2), (9, 1)):
            copy.add([shipment("a", Run("demo", first, length))])
        recording = copy.find("demo")
        assert recording is not None and copy.find("other") is None and copy.names() == ["demo"]
        items = list(checked("demo", recording.read()))
        assert numbers(items) == {*range(7), 9} and missing(items) == [(7, 8, "not read in time")]
        assert (copy.next_of("demo", "a"), copy.next_of("demo", "b"), copy.next_of("x", "a")) == (10, 0, 0)
    with Store(tmp_path, sync_ms=0) as store:
        assert FleetCopy(store).names() == ["demo"] and FleetCopy(store).next_of("demo", "a") == 10


def test_rows_of_several_messages_that_follow_each_other_are_stored_together(tmp_path: Path) -> None:
    gap = Gap(4, 5, "line lost")
    messages = [
        shipment("a", Run("x", 0, 2), Run("demo", 0, 3)),
        shipment("b", Run("x", 50, 1, 50)),
        shipment("a", Run("demo", 3, 1), Run("demo", 6, 1, 0, gap), Run("y", 7, 1)),
        shipment("a", Run("demo", 3, 1), Run("demo", 7, 2), Run("x", 2, 2)),
    ]
    with Store(tmp_path, sync_ms=0) as store:
        copy = FleetCopy(store)
        copy.add(messages)
        found = {}
        for name in copy.names():
            recording = copy.find(name)
            assert recording is not None
            items = list(checked(name, recording.read()))
            found[name] = numbers(items), missing(items), len(recording.extents())
        assert found["demo"] == ({*range(4), *range(6, 9)}, [(4, 5, "line lost")], 1)
        assert found["x"] == ({*range(4), 50}, [(4, 49, "unused")], 2)
        assert found["y"][0] == {7}
        assert store.commits <= 2


def test_messages_of_several_commits_of_the_same_devices_are_added_in_order(tmp_path: Path) -> None:
    """Their dictionaries are equal, and have each device twice."""
    messages = [
        shipment("a", *(Run(name, at, 1) for at in (first, first + 1) for name in ("x", "demo"))) for first in (0, 2, 4)
    ]
    with Store(tmp_path, sync_ms=0) as store:
        copy = FleetCopy(store)
        copy.add(messages)
        for name in ("x", "demo"):
            recording = copy.find(name)
            assert recording is not None and numbers(checked(name, recording.read())) == set(range(6))


def test_rows_after_those_that_the_disk_did_not_take_do_not_take_their_place(tmp_path: Path) -> None:
    failures: list[int] = []

    def fails(call: str, name: str) -> int:
        return failures.pop() if call == "write" and failures else 0

    runs = [("a", Run("demo", 0, 5)), ("b", Run("demo", 20, 5, 20)), ("a", Run("demo", 5, 5))]
    shipments = [shipment(server, run) for server, run in runs]
    with Store(tmp_path, sync_ms=0, disk=FailingDisk(tmp_path, fails)) as store:
        copy = FleetCopy(store)
        failures.append(errno.ENOSPC)
        with pytest.raises(StorageFull):
            copy.add(shipments)
        copy.add(shipments)
        recording = copy.find("demo")
        assert recording is not None
        assert numbers(checked("demo", recording.read())) == {*range(10), *range(20, 25)}


@given(USES)
def test_logs_of_several_servers_are_one_recording(uses: list[tuple[int, int, str]]) -> None:
    logs: dict[str, list[NumberedRows | Gap]] = {"a": [], "b": []}
    ends = dict.fromkeys(logs, 0)
    wanted, number = set(), 0
    for lost, rows, server in uses:
        begin, number = number, number + lost
        if ends[server] < begin:
            logs[server].append(Gap(ends[server], begin - 1, "unused"))
        if lost:
            logs[server].append(Gap(begin, number - 1, "not read in time"))
        logs[server].append(NumberedRows(number, batch_of("demo", number, rows)))
        wanted |= set(range(number, number + rows))
        ends[server] = number = number + rows
    items = list(checked("demo", merged([iter(log) for log in logs.values()])))
    assert numbers(items) == wanted
    lost_numbers = {
        n for first, last, why in missing(items) for n in range(first, last + 1) if why == "not read in time"
    }
    assert lost_numbers == set(range(number)) - wanted and len(missing(items)) == len(
        [each for each in items if isinstance(each, Gap)]
    )


def test_the_worst_reason_counts() -> None:
    logs: list[list[NumberedRows | Gap]] = [
        [Gap(0, 9, "unused"), Gap(10, 14, "damaged", "there"), NumberedRows(15, batch_of("demo", 15, 1))],
        [NumberedRows(0, batch_of("demo", 0, 3)), Gap(3, 11, "cleared")],
    ]
    found = [item for item in merged([iter(log) for log in logs]) if isinstance(item, Gap)]
    assert [(each.first, each.last, each.why) for each in found] == [(3, 9, "cleared"), (10, 14, "damaged")]
