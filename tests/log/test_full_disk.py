"""A disk that is full of recordings: what the retention no longer covers is deleted, and recording goes on."""

from __future__ import annotations

import pytest

from fastflight.errors import StorageFull
from fastflight.log import Log, Retention, Store
from tests.log.rows import batch_of, checked, numbers, stored_bytes
from tests.support.small_disk import BLOCK_BYTES, SmallDisk

LIMIT = 1_000_000


# Room for the reserve, and for what SQLite writes beside the rows.
pytestmark = pytest.mark.parametrize("small_disk", [24 * 1024 * 1024], indirect=True)


def append_until_full(log: Log) -> None:
    with pytest.raises(StorageFull):
        while True:
            log.append(batch_of(log.name, log.next_seq, 100)).result()


@pytest.mark.parametrize(("silent", "room"), [(1, BLOCK_BYTES), (300, 0)])
def test_a_sweep_makes_room_whatever_boards_are_silent(small_disk: SmallDisk, silent: int, room: int) -> None:
    """Their names and numbers stay when the body with their rows is deleted."""
    folder = small_disk.folder / "recordings"
    names = [f"silent{i}" for i in range(silent)]
    with Store(folder, sync_ms=0, retention=Retention(max_bytes=LIMIT)) as store:
        for ticket in [store.open(name).append(batch_of(name, 0, 3)) for name in names]:
            ticket.result()
        log = store.open("demo")
        store.sweep()
        for _ in range(2):
            small_disk.fill(6 * LIMIT + room)
            append_until_full(log)
            small_disk.fill(room)
            assert store.sweep() > 0
            small_disk.empty()
            assert stored_bytes(store) <= LIMIT
            reached = log.next_seq
            log.append(batch_of("demo", reached, 5)).result()
        assert numbers(checked("demo", log.read())) == set(range(log.first, reached + 5))
        assert [store.log(name).next_seq for name in names] == [3] * silent
    with Store(folder, sync_ms=0) as store:
        assert store.names() == ["demo", *sorted(names)]
        assert [store.log(name).next_seq for name in names] == [3] * silent
        assert not store.content.damaged


def test_rows_that_wait_do_not_stop_a_sweep(small_disk: SmallDisk) -> None:
    with Store(small_disk.folder, sync_ms=0, retention=Retention(max_bytes=LIMIT)) as store:
        store.open("silent").append(batch_of("silent", 0, 3)).result()
        log = store.open("demo")
        while stored_bytes(store) <= LIMIT:
            log.append(batch_of("demo", log.next_seq, 20)).result()
    with Store(small_disk.folder, sync_ms=60_000, retention=Retention(max_bytes=LIMIT)) as store:
        log = store.log("demo")
        tickets = [log.append(batch_of("demo", log.next_seq, 1000)) for _ in range(3)]  # more than the sweep needs
        small_disk.fill()
        assert store.sweep() > 0
        assert not tickets[0].done
        small_disk.empty()
    for ticket in tickets:
        ticket.result()
    assert tickets[-1].last == log.next_seq - 1
    with Store(small_disk.folder) as store:
        assert store.log("silent").next_seq == 3
        assert numbers(checked("demo", store.log("demo").read())) >= set(range(tickets[0].first, log.next_seq))


def test_the_only_rows_are_deleted_when_they_are_too_old(small_disk: SmallDisk) -> None:
    """Nothing can be written, so no later rows tell how old these are."""
    now = 1000.0
    with Store(
        small_disk.folder, sync_ms=0, retention=Retention(max_seconds=3600), clock=lambda: now, ticks=lambda: now
    ) as store:
        log = store.open("demo")
        log.append(batch_of("demo", 0, 100)).result()
        small_disk.fill()
        append_until_full(log)
        small_disk.fill()
        for now in (1030.0, 2000.0, 4599.0):  # noqa: B007  # a clock
            assert store.sweep() == 0
        now = 4601.0
        assert store.sweep() == 1
        assert store.sweep() == 0
        reached = log.next_seq
        log.append(batch_of("demo", reached, 5)).result()
        assert numbers(checked("demo", log.read())) == set(range(reached, reached + 5))
    with Store(small_disk.folder) as store:
        assert store.log("demo").next_seq == reached + 5
