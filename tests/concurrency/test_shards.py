"""A group of event loops: what belongs together stays together, and the load is shared."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter

import pytest

from fastflight.concurrency import Shard, Shards
from fastflight.errors import Stopped

SOON = 60.0
NAMES = [f"board-{number}" for number in range(1_000)]


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_each_has_a_thread_of_its_own() -> None:
    with Shards(3, "trio") as shards:
        assert len(shards) == 3
        assert [shard.submit(name_of_thread()).result(SOON) for shard in shards] == ["trio-0", "trio-1", "trio-2"]
    assert not any(shard.running for shard in shards)


def test_a_name_has_one_shard_and_names_are_spread() -> None:
    shards = Shards(4)
    chosen = [shards.of(name) for name in NAMES]
    assert [shards.of(name) for name in NAMES] == chosen
    assert min(Counter(chosen).values()) > len(NAMES) / 4 * 0.75
    shards.close()


def test_another_process_chooses_the_same() -> None:
    shards = Shards(8)
    here = " ".join(shards.of(name).name for name in NAMES[:32])
    shards.close()
    code = (
        "from fastflight.concurrency import Shards\n"
        "shards = Shards(8)\n"
        f"print(*(shards.of(name).name for name in {NAMES[:32]}))\n"
        "shards.close()"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert there.stdout.strip() == here


def test_what_has_no_name_goes_where_the_least_is_to_do() -> None:
    async def stay() -> None:
        await asyncio.Event().wait()

    with Shards(3) as shards:
        taken: list[Shard] = []
        for _ in range(6):
            shard = shards.of(None)
            shard.submit(stay())
            taken.append(shard)
        assert Counter(taken) == dict.fromkeys(shards, 2)
        assert [shard.load for shard in shards] == [2, 2, 2]


def test_what_is_said_of_each() -> None:
    with Shards(2, "pair") as shards:
        for shard in shards:
            shard.submit(name_of_thread()).result(SOON)
        first, second = shards.stats()
        assert (first["name"], second["name"]) == ("pair-0", "pair-1")
        assert first["loop"] in ("asyncio", "uvloop", "winloop")
        assert (first["streams"], first["tasks"], first["stuck"], first["times_stuck"]) == (0, 0, False, 0)


def test_closing_ends_all_of_them_and_they_take_nothing_more() -> None:
    cleaned = threading.Semaphore(0)
    begun = threading.Semaphore(0)

    async def stay() -> None:
        try:
            begun.release()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.release()

    shards = Shards(2).start()
    for shard in shards:
        shard.submit(stay())
        assert begun.acquire(timeout=SOON)
    shards.close()
    assert all(cleaned.acquire(blocking=False) for _ in shards)
    shards.close()
    with pytest.raises(Stopped):
        shards.of("board").submit(name_of_thread())


def test_ones_that_were_never_started_can_be_closed() -> None:
    Shards(2).close()


def test_there_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Shards(0)
