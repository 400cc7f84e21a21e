"""Appending on an event loop: the same answers, and a loop that goes on while the disk is slow."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from fastflight.errors import SequenceConflict, StorageError
from fastflight.log import Appended, Log, Store
from fastflight.log import writer as writer_module
from tests.log.disks import FailingDisk
from tests.log.rows import batch_of, checked, missing, numbers


def test_the_numbers_are_those_of_append(tmp_path: Path) -> None:
    async def main(log: Log) -> None:
        assert await (await log.aappend(batch_of("demo", 0, 5))) == Appended(0, 4)
        assert await (await log.aappend(batch_of("demo", 8, 2), expected=5, first=8)) == Appended(8, 9)
        with pytest.raises(SequenceConflict):
            await log.aappend(batch_of("demo", 8, 2), expected=5)

    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        asyncio.run(main(log))
        items = list(log.read())
    assert numbers(checked("demo", items)) == {0, 1, 2, 3, 4, 8, 9}
    assert missing(items) == [(5, 7, "not read in time")]


def test_append_and_aappend_take_the_same() -> None:
    def parameters(method: object) -> list[str]:
        return [str(each) for each in inspect.signature(method).parameters.values()]  # type: ignore[arg-type]

    assert parameters(Log.append) == parameters(Log.aappend)


def test_the_loop_goes_on_while_the_disk_does_not(tmp_path: Path) -> None:
    stuck = threading.Event()

    def fails(call: str, name: str) -> int:
        if call == "sync":
            stuck.wait(10)
        return 0

    async def main() -> None:
        store = Store(tmp_path, sync_ms=0, disk=FailingDisk(tmp_path, fails))
        log = store.open("demo")
        tickets = [await log.aappend(batch_of("demo", i, 1)) for i in range(10)]
        waiting = [asyncio.ensure_future(_result(ticket)) for ticket in tickets]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[3].cancel()
        stuck.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results.pop(3), asyncio.CancelledError)
        assert results == [Appended(i, i) for i in range(10) if i != 3]
        # Giving up the waiting gave up nothing else.
        assert numbers(list(log.read())) == set(range(10))
        await asyncio.to_thread(store.close)

    asyncio.run(main())


async def _result(ticket: object) -> object:
    return await ticket  # type: ignore[misc]


def test_without_room_an_append_awaits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_WAITING_BYTES", 1)

    async def main() -> None:
        with Store(tmp_path, sync_ms=1) as store:
            log = store.open("demo")
            tickets = [await log.aappend(batch_of("demo", i, 1)) for i in range(5)]
            assert [ticket.done for ticket in tickets[:-1]] == [True] * 4
            await tickets[-1]

    asyncio.run(main())


def test_a_failure_reaches_everyone_who_waits(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FailingDisk(tmp_path, lambda call, name: 28 if call == "write" else 0)
        with Store(tmp_path, sync_ms=10_000, disk=disk) as store:
            tickets = [await store.open(name).aappend(batch_of(name, 0, 1)) for name in "abc"]
            waiting = [asyncio.ensure_future(_result(ticket)) for ticket in tickets]
            await asyncio.sleep(0)
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, StorageError)

    asyncio.run(main())
