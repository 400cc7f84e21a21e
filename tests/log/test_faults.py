"""Disks that fail: a typed error for what was not kept, and everything else as if nothing had been."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.errors import StorageError, StorageFull
from fastflight.log import Log, Range, Retention, Store, compact
from fastflight.log.disk import LocalDisk
from tests.log.disks import FailingDisk, MemoryDisk
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers

SMALL = 1500


class Faults:
    """Fails calls number `start` to `end`, of those that change something."""

    def __init__(self, start: int, end: int, number: int) -> None:
        self.calls = 0
        self.failing = range(start, end)
        self._number = number

    def over(self) -> None:
        self.failing = range(0)

    def __call__(self, call: str, name: str) -> int:
        if call not in ("create", "write", "sync", "truncate", "rename", "remove", "sync_folder"):
            return 0
        self.calls += 1
        return self._number if self.calls - 1 in self.failing else 0


def record(store: Store, lots: int, kept: set[int]) -> int:
    """Append; returns how many failed. Those are given again under the same numbers, or left out."""
    failed = 0
    for i in range(lots):
        log = store.open("a", SCHEMA)
        first = log.next_seq
        try:
            log.append(batch_of("a", first, i % 4 + 1), expected=first).result()
            kept |= set(range(first, first + i % 4 + 1))
        except StorageError as error:
            assert "on request" not in str(error)  # the text of the system may hold a path
            failed += 1
            assert log.next_seq == first
    return failed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("length", [1, 4])
def test_any_call_may_fail(tmp_path: Path, number: int, length: int) -> None:
    total = 1
    start = 0
    while start < total:
        memory, faults, kept = MemoryDisk(), Faults(start, start + length, number), set[int]()
        with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=FailingDisk(memory, faults)) as store:
            failed = record(store, 9, kept)
            log = store.open("a", SCHEMA)
            assert numbers(checked("a", log.read())) == kept
            assert store.statistics().failed == failed
            faults.over()
            assert record(store, 2, kept) == 0
            assert numbers(checked("a", log.read())) == kept
        total = faults.calls
        with Store(tmp_path, disk=memory) as store:
            log = store.open("a", SCHEMA)
            items = list(checked("a", log.read()))
            assert numbers(items) == kept and not missing(items)
        start += 1
    assert total > 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_sweep_that_fails_forgets_no_number(tmp_path: Path, number: int) -> None:
    start, failed = 0, True
    while failed:
        memory, faults = MemoryDisk(), Faults(10**6, 10**6, number)
        retention = Retention(max_bytes=4 * SMALL)
        with Store(tmp_path, sync_ms=0, retention=retention, disk=FailingDisk(memory, faults)) as store:
            store.open("silent", SCHEMA).append(batch_of("silent", 0, 3)).result()
            while store.statistics().bytes <= 4 * SMALL:
                record(store, 1, set())
            faults.calls, faults.failing = 0, range(start, start + 4)
            try:
                store.sweep()
            except StorageError:
                pass
            failed = faults.calls > start
            faults.over()
            store.sweep()
            assert store.statistics().bytes <= 4 * SMALL
            reached = store.log("a").next_seq
            store.log("a").append(batch_of("a", reached, 1), expected=reached).result()
        with Store(tmp_path, disk=memory) as store:
            assert (store.log("silent").next_seq, store.log("a").next_seq) == (3, reached + 1)
            assert not missing(store.log("a").read())
        start += 1
    assert start > 5


def test_full_says_full_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    full = False

    def fails(call: str, name: str) -> int:
        return errno.ENOSPC if full and call == "write" else 0

    with Store(tmp_path, sync_ms=0, disk=FailingDisk(LocalDisk(tmp_path), fails)) as store:
        log = store.open("a", SCHEMA)
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
        assert missing(items) == [(5, 9, "never written")]
        assert store.statistics().damage == ()


def test_what_was_numbered_after_a_failed_append_fails_with_it(tmp_path: Path) -> None:
    broken = True

    def fails(call: str, name: str) -> int:
        return errno.EIO if broken and call == "sync" else 0

    with Store(tmp_path, sync_ms=10_000, disk=FailingDisk(MemoryDisk(), fails)) as store:
        tickets = [store.open(name, SCHEMA).append(batch_of(name, 0, 2)) for name in ("a", "b", "a")]
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
        with Store(tmp_path, disk=FailingDisk(MemoryDisk(), lambda call, name: errno.EIO * (call == "write"))) as store:
            tickets = [store.open("a", SCHEMA).append(large(seq)) for seq in range(3)]
        for ticket in tickets:
            with pytest.raises(StorageError):
                ticket.result()
        assert pa.total_allocated_bytes() - before < 100_000
    finally:
        gc.enable()


def large(seq: int) -> pa.RecordBatch:
    batch = batch_of("a", seq, 1)
    return batch.set_column(2, SCHEMA.field(2), pa.array([bytes(1_000_000)]))


def test_opening_on_a_broken_disk_is_a_typed_error(tmp_path: Path) -> None:
    for broken in ("names", "open", "sync", "read 0 64"):
        memory = MemoryDisk()
        with Store(tmp_path, disk=memory) as store:
            store.open("a", SCHEMA).append(batch_of("a", 0, 5)).result()

        def fails(call: str, name: str, broken: str = broken) -> int:
            return errno.EIO if call == broken else 0

        if broken.startswith("read"):  # a header that cannot be read is damage: the store opens, and goes on behind it
            with Store(tmp_path, sync_ms=0, disk=FailingDisk(memory, fails)) as store:
                assert store.statistics().damage
                store.open("a", SCHEMA).append(batch_of("a", 0, 1)).result()
        else:
            with pytest.raises(StorageError):
                Store(tmp_path, disk=FailingDisk(memory, fails))
            Store(tmp_path, disk=memory).close()


def test_a_file_that_can_not_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    """Of the reader, who may ask again: nothing of it is damage."""
    failing = False

    def fails(call: str, name: str) -> int:
        return errno.EMFILE if failing and call == "open" else 0

    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=FailingDisk(MemoryDisk(), fails)) as store:
        log = store.open("a", SCHEMA)
        for first in range(0, 40, 5):
            log.append(batch_of("a", first, 5)).result()
        for _ in ("segments", "Parquet"):
            failing = True
            with pytest.raises(StorageError, match="reading the recordings failed"):
                list(log.read())
            failing = False
            assert numbers(checked("a", log.read())) == set(range(40))
            compact(store)


@pytest.mark.parametrize("ask", [Log.statistics, lambda log: log.extents(Range(from_seq=7))], ids=["amount", "extents"])
def test_what_is_swept_while_it_is_counted_is_counted_again(tmp_path: Path, ask: Callable[[Log], object]) -> None:
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL) as store:
        for first in range(0, 40, 5):
            store.open("a", SCHEMA).append(batch_of("a", first, 5)).result()

    def sweeps(call: str, name: str) -> int:
        if call == "open" and name == sidecar and store.statistics().parts > 1:
            store.log("a").trim(40).result()
            store.sweep()
        return 0

    sidecar = ""
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=FailingDisk(LocalDisk(tmp_path), sweeps)) as store:
        log = store.log("a")
        log.trim(3).result()
        sidecar = min(path.name for path in tmp_path.glob("*.idx"))
        ask(log)
        assert log.statistics().rows == 0
        assert log.extents() == []


def test_a_bad_sector_costs_the_records_in_it(tmp_path: Path) -> None:
    bad = range(0)

    def fails(call: str, name: str) -> int:
        if not call.startswith("read") or not name.startswith("000000000000-"):
            return 0
        offset, size = map(int, call.split()[1:])
        return errno.EIO if offset < bad.stop and bad.start < offset + size else 0

    memory = MemoryDisk()
    with Store(tmp_path, sync_ms=0, disk=FailingDisk(memory, fails)) as store:
        log = store.open("a", SCHEMA)
        for first in range(0, 200, 10):
            log.append(batch_of("a", first, 10)).result()
        bad = range(8192, 12288)
        items = list(checked("a", log.read()))
        gaps = missing(items)
        assert gaps and all(reason == "damaged" for *_, reason in gaps)
        assert sum(last - first + 1 for first, last, _ in gaps) <= 80
        assert numbers(items) == set(range(200)) - {n for first, last, _ in gaps for n in range(first, last + 1)}
    with Store(tmp_path, sync_ms=0, disk=FailingDisk(memory, fails)) as store:
        assert numbers(checked("a", store.log("a").read())) == numbers(items)
        assert store.log("a").next_seq == 200


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_compaction_that_fails_keeps_the_rows(tmp_path: Path, number: int) -> None:
    start, failed = 0, True
    while failed:
        memory, kept = MemoryDisk(), set[int]()
        with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=memory) as store:
            record(store, 9, kept)
        faults = Faults(10**6, 10**6, number)
        with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=FailingDisk(memory, faults)) as store:
            faults.calls, faults.failing = 0, range(start, start + 1)
            try:
                compact(store)
            except StorageError:
                pass
            failed = faults.calls > start
            assert numbers(checked("a", store.log("a").read())) == kept
        with Store(tmp_path, segment_bytes=SMALL, disk=memory) as store:
            items = list(checked("a", store.log("a").read()))
            assert numbers(items) == kept and not missing(items)
        start += 1
    assert start > 10
