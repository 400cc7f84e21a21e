"""The log on an event loop: the same answers, and a loop that goes on while the disk is slow."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from fastflight.errors import SequenceConflict, StorageError
from fastflight.log import Appended, AsyncBatchLog, AsyncLog, AsyncStore, BatchLog, Range, Store
from fastflight.log import committer as committer_module
from fastflight.log.disk import File, LocalDisk
from tests.log.disks import FailingDisk, MemoryDisk
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers


def parameters(cls: type, name: str) -> list[str]:
    return [str(p).split(":")[0] for p in inspect.signature(getattr(cls, name)).parameters.values()]


def test_parity() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(BatchLog) == public(AsyncBatchLog)
    assert public(AsyncBatchLog) <= public(AsyncLog)
    for name in ("append", "read", "extents", "trim", "statistics"):
        assert parameters(BatchLog, name) == parameters(AsyncBatchLog, name) == parameters(AsyncLog, name)
    assert {"names", "open", "log", "statistics", "sweep"} <= public(AsyncStore) & public(Store)


def test_the_same_is_kept_and_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AsyncStore.create(tmp_path, sync_ms=0) as store:
            log: AsyncBatchLog = await store.open("demo", SCHEMA)
            assert await (await log.append(batch_of("demo", 0, 5))) == Appended(0, 4)
            assert await (await log.append(batch_of("demo", 8, 2), expected=5, first=8)) == Appended(8, 9)
            with pytest.raises(SequenceConflict):
                await log.append(batch_of("demo", 8, 2), expected=5)
            items = [item async for item in log.read()]
            assert numbers(checked("demo", items)) == {0, 1, 2, 3, 4, 8, 9}
            assert missing(items) == [(5, 7, "never written")]
            await (await log.trim(3))
            assert (await log.statistics()).rows == 4
            assert [item.first async for item in log.read(Range(4, 4))] == [4]
            assert await store.sweep() == 0 and await store.compact() == []

    asyncio.run(main())


def test_the_loop_goes_on_while_the_disk_does_not(tmp_path: Path) -> None:
    stuck = threading.Event()

    class SlowDisk(LocalDisk):
        def create(self, name: str) -> File:
            stuck.wait(10)
            return super().create(name)

    async def main() -> None:
        store = AsyncStore(Store(tmp_path, sync_ms=0, disk=SlowDisk(tmp_path)))
        log = await store.open("demo", SCHEMA)
        tickets = [await log.append(batch_of("demo", i, 1)) for i in range(10)]
        waiting = [asyncio.ensure_future(_result(ticket)) for ticket in tickets]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[3].cancel()
        stuck.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results.pop(3), asyncio.CancelledError)
        assert results == [Appended(i, i) for i in range(10) if i != 3]
        # Giving up the waiting gave up nothing else.
        assert numbers([item async for item in log.read()]) == set(range(10))
        await store.aclose()

    asyncio.run(main())


async def _result(ticket: object) -> object:
    return await ticket  # type: ignore[misc]


def test_without_room_an_append_awaits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "MAX_WAITING_BYTES", 1)

    async def main() -> None:
        async with await AsyncStore.create(tmp_path, sync_ms=1) as store:
            log = await store.open("demo", SCHEMA)
            tickets = [await log.append(batch_of("demo", i, 1)) for i in range(5)]
            assert [ticket.done for ticket in tickets[:-1]] == [True] * 4
            await tickets[-1]

    asyncio.run(main())


def test_a_failure_reaches_everyone_who_waits(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FailingDisk(MemoryDisk(), lambda call, name: 28 if call == "write" else 0)
        async with await AsyncStore.create(tmp_path, sync_ms=10_000, disk=disk) as store:
            tickets = [await (await store.open(name, SCHEMA)).append(batch_of(name, 0, 1)) for name in "abc"]
            waiting = [asyncio.ensure_future(_result(ticket)) for ticket in tickets]
            await asyncio.sleep(0)
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, StorageError)

    asyncio.run(main())


def test_a_reader_that_leaves_early_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AsyncStore.create(tmp_path, sync_ms=0) as store:
            log = await store.open("demo", SCHEMA)
            for i in range(600):
                ticket = await log.append(batch_of("demo", i, 1))
            await ticket
            reading = log.read()
            async for item in reading:
                assert item.first == 0
                break
            await reading.aclose()

    asyncio.run(main())
