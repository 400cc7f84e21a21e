"""Disks that fail: a typed error for what was not stored, and everything else as if nothing had been."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.errors import StorageError, StorageFull
from fastflight.log import Retention, Store, compact
from tests.log.disks import FailingDisk
from tests.log.rows import batch_of, checked, missing, numbers, rows_of, stored_bytes


class Faults:
    """Fails calls number `start` to `end`, of those that change something."""

    def __init__(self, number: int) -> None:
        self.calls = 0
        self.failing = range(0)
        self._number = number

    def __call__(self, call: str, name: str) -> int:
        if call not in ("write", "sync", "remove"):
            return 0
        self.calls += 1
        return self._number if self.calls - 1 in self.failing else 0


def record(store: Store, lots: int, kept: set[int]) -> int:
    """Append; returns how many failed. Those are given again under the same numbers."""
    failed = 0
    for i in range(lots):
        log = store.open("a")
        first = log.next_seq
        try:
            log.append(batch_of("a", first, i % 4 + 1), expected=first).result()
            kept |= set(range(first, first + i % 4 + 1))
        except StorageError as error:
            assert "on request" not in str(error)  # the text of the system may hold a path
            failed += 1
            assert log.next_seq == first
    return failed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("length", [1, 4])
def test_any_call_may_fail(tmp_path: Path, number: int, length: int) -> None:
    start, total = 0, 1
    while start < total:
        folder = tmp_path / str(start)
        folder.mkdir()
        faults, kept = Faults(number), set[int]()
        with Store(folder, sync_ms=0, disk=FailingDisk(folder, faults)) as store:
            faults.calls, faults.failing = 0, range(start, start + length)
            record(store, 6, kept)
            log = store.open("a")
            assert numbers(checked("a", log.read())) == kept
            faults.failing = range(0)
            assert record(store, 2, kept) == 0
            assert numbers(checked("a", log.read())) == kept
            total = faults.calls
        with Store(folder) as store:
            items = list(checked("a", store.open("a").read()))
            assert numbers(items) == kept and not missing(items)
        start += 3
    assert total > 20


@pytest.mark.parametrize(("number", "start"), [(errno.ENOSPC, 0), (errno.EIO, 1)])
@pytest.mark.parametrize("in_files", [False, True])
def test_a_sweep_that_fails_forgets_no_number(tmp_path: Path, number: int, start: int, in_files: bool) -> None:
    failed = True
    while failed:
        folder = tmp_path / str(start)
        folder.mkdir()
        faults = Faults(number)
        retention = Retention(max_bytes=6000)
        with Store(folder, sync_ms=0, retention=retention, disk=FailingDisk(folder, faults)) as store:
            store.open("silent").append(batch_of("silent", 0, 3)).result()
            while stored_bytes(store) <= 20_000:
                record(store, 1, set())
                if in_files:
                    compact(store, file_bytes=0, least=1)
            faults.calls, faults.failing = 0, range(start, start + 4)
            try:
                store.sweep()
            except StorageError:
                pass
            failed = faults.calls > start
            faults.failing = range(0)
            store.sweep()
            assert stored_bytes(store) <= 6000
            reached = store.log("a").next_seq
            store.log("a").append(batch_of("a", reached, 1), expected=reached).result()
        with Store(folder) as store:
            assert (store.log("silent").next_seq, store.log("a").next_seq) == (3, reached + 1)
            assert not missing(store.log("a").read())
        start += 2
    assert start > 4


def test_full_says_full_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    full = False

    def fails(call: str, name: str) -> int:
        return errno.ENOSPC if full and call == "write" else 0

    with Store(tmp_path, sync_ms=0, disk=FailingDisk(tmp_path, fails)) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 5)).result()
        full = True
        for _ in range(3):
            with pytest.raises(StorageFull):
                log.append(batch_of("a", 5, 5)).result()
        assert numbers(checked("a", log.read())) == set(range(5))
        full = False
        # Rows 5 to 9 were lost where they came from: the hole says so.
        log.append(batch_of("a", 10, 5), first=10).result()
    with Store(tmp_path) as store:
        items = list(checked("a", store.log("a").read()))
        assert numbers(items) == {*range(5), *range(10, 15)}
        assert missing(items) == [(5, 9, "not read in time")]


def test_what_was_numbered_after_a_failed_append_fails_with_it(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, lambda call, name: errno.EIO * (call == "sync"))
    with Store(tmp_path, sync_ms=10_000, disk=disk) as store:
        tickets = [store.open(name).append(batch_of(name, 0, 2)) for name in ("a", "b", "a")]
        store.close()
    for ticket in tickets:
        with pytest.raises(StorageError, match="recording failed"):
            ticket.result()
    assert [store.log(name).next_seq for name in ("a", "b")] == [0, 0]


def test_what_is_refused_is_not_held_in_memory(tmp_path: Path) -> None:
    """Not by its error, either, for as long as somebody has that."""
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        disk = FailingDisk(tmp_path, lambda call, name: errno.EIO * (call == "write" and not name))
        with Store(tmp_path, disk=disk) as store:
            tickets = [store.open("a").append(large(seq)) for seq in range(3)]
        for ticket in tickets:
            with pytest.raises(StorageError):
                ticket.result()
        assert pa.total_allocated_bytes() - before < 100_000
    finally:
        gc.enable()


def large(seq: int) -> pa.RecordBatch:
    return rows_of([(seq, bytes(1_000_000))])


def test_opening_on_a_broken_disk_is_a_typed_error(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open("a").append(batch_of("a", 0, 5)).result()
    for broken in ("names", "open"):
        with pytest.raises(StorageError):
            Store(tmp_path, disk=FailingDisk(tmp_path, lambda call, name, broken=broken: errno.EIO * (call == broken)))
        Store(tmp_path).close()


def test_a_file_that_can_not_be_opened_is_a_typed_error_and_one_that_can_not_be_read_is_damage(tmp_path: Path) -> None:
    number = 0
    with Store(tmp_path, sync_ms=0, disk=FailingDisk(tmp_path, lambda call, name: number * (call == "read"))) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 5)).result()
        compact(store, file_bytes=0, least=1)
        number = errno.EMFILE  # of the reader, who may ask again
        with pytest.raises(StorageError, match="reading the recordings failed"):
            list(log.read())
        number = errno.EIO  # a bad sector
        assert missing(log.read()) == [(0, 4, "damaged")]
        number = 0
        assert numbers(checked("a", log.read())) == set(range(5))
