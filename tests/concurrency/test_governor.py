"""One cap over what waits in a process: shares that shrink, and hand-offs that give back what they held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import HandIn, Shard, drain_lots
from fastflight.concurrency.across import across
from fastflight.concurrency.gather import Gather
from fastflight.concurrency.gather_aio import AsyncGather
from fastflight.concurrency.governor import LEAST_BYTES, SHARE, STEP_BYTES, Governor
from fastflight.concurrency.inbox import Inbox
from fastflight.concurrency.offload import unbroken

SOON = 20.0
ITEM = 10 * STEP_BYTES
MOST = 1 << 30


async def endless(given: Callable[[], object] = lambda: None) -> AsyncIterator[int]:
    while True:
        yield ITEM
        given()


def most_of(governor: Governor) -> int:
    """What an account comes to hold that takes all it may."""
    account, held = governor.account(), STEP_BYTES
    while account.hold(held):
        held += STEP_BYTES
    return held


def test_the_more_there_are_the_less_each_may_have_and_something_is_left() -> None:
    governor = Governor(512_000_000)
    shares = [most_of(governor) for _ in range(4 * SHARE)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 7_000_000
    assert shares[-1] <= 2 * STEP_BYTES
    assert not governor.scarce
    assert governor.held == sum(shares) <= governor.limit


def test_what_one_gives_back_the_next_may_have() -> None:
    governor = Governor(200 * STEP_BYTES)
    first, second = governor.account(), governor.account()
    first.hold(100 * STEP_BYTES)
    assert not second.hold(2 * STEP_BYTES)
    first.hold(0)
    assert second.hold(2 * STEP_BYTES)
    second.hold(0)
    assert governor.stats() == {"limit": 200 * STEP_BYTES, "held": 0, "most": 102 * STEP_BYTES}


def test_it_is_scarce_when_there_is_no_share_left_that_is_worth_having() -> None:
    governor = Governor(3 * LEAST_BYTES)
    account = governor.account()
    account.hold(2 * LEAST_BYTES)
    assert not governor.scarce
    account.hold(2 * LEAST_BYTES + STEP_BYTES)
    assert governor.scarce


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3 * STEP_BYTES)), max_size=60))
def test_what_is_told_is_never_far_from_what_is_held(acts: list[tuple[int, int]]) -> None:
    governor = Governor(MOST)
    accounts = [governor.account() for _ in range(5)]
    held = [0] * 5
    for number, size in acts:
        held[number] = size
        accounts[number].hold(size)
        assert abs(governor.held - sum(held)) < 5 * STEP_BYTES
    for account in accounts:
        account.hold(0)
    assert governor.held == 0


def test_where_there_is_none_each_has_an_item_and_none_stands_still() -> None:
    governor = Governor(ITEM)
    with Shard(governor=governor) as shard:
        lots = [drain_lots(shard, endless(), max_bytes=MOST, size_of=int) for _ in range(20)]
        for _ in range(3):
            for each in lots:
                assert next(each)
        # An item that each may always have, and one in the hands of its reader.
        assert governor.held <= 2 * len(lots) * ITEM
        for each in lots:
            each.close()
        assert governor.held == 0


def test_with_room_one_has_all_that_its_own_limit_allows() -> None:
    governor = Governor(10 * SHARE * ITEM)
    full = threading.Event()
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1
        if count == 3:
            full.set()

    with Shard(governor=governor) as shard:
        lots = drain_lots(shard, endless(counted), max_bytes=4 * ITEM, size_of=int)
        assert full.wait(SOON)
        assert sum(next(lots)) >= 3 * ITEM
        lots.close()
    assert governor.held == 0


@pytest.mark.parametrize("ending", ["finished", "failed", "closed", "closed from outside"])
def test_a_hand_in_gives_back_what_it_held(ending: str) -> None:
    async def main() -> None:
        governor = Governor(MOST)
        handed: HandIn[int] = HandIn(asyncio.get_running_loop(), MOST, governor=governor)
        for _ in range(3):
            handed.put(ITEM, ITEM)
        assert governor.held == 3 * ITEM
        assert await anext(handed) == ITEM
        assert governor.held == 3 * ITEM  # the lot is in its consumer's hands
        if ending == "finished":
            handed.finish()
            assert [item async for item in handed] == [ITEM, ITEM]
        elif ending == "failed":
            handed.fail(ValueError(), at_once=True)
        elif ending == "closed":
            await handed.aclose()
        else:  # and is asked once more by a consumer that had not seen it
            handed.put(ITEM, ITEM)
            handed.close()
            assert [item async for item in handed] == [ITEM, ITEM]
        assert governor.held == 0

    asyncio.run(main())


def test_who_hands_in_waits_where_memory_is_scarce_but_for_one_item() -> None:
    async def main() -> None:
        governor = Governor(ITEM)
        handed: HandIn[int] = HandIn(asyncio.get_running_loop(), MOST, governor=governor)
        putting = threading.Thread(target=lambda: [handed.put(ITEM, ITEM) for _ in range(10)] and handed.finish())
        putting.start()
        assert [item async for item in handed] == [ITEM] * 10
        putting.join()
        assert governor.most <= 2 * ITEM
        assert governor.held == 0

    asyncio.run(main())


def test_an_inbox_likewise() -> None:
    governor = Governor(ITEM)
    inbox: Inbox[int] = Inbox(MOST, lambda: True, governor)
    putting = threading.Thread(target=lambda: [inbox.put(ITEM, ITEM) for _ in range(10)] and inbox.finish())
    putting.start()
    assert list(inbox) == [ITEM] * 10
    putting.join()
    assert governor.most == ITEM
    inbox.close()
    assert governor.held == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_gathered_side_by_side_is_governed(ordered: bool) -> None:
    governor = Governor(2 * ITEM)
    jobs = [lambda: iter([ITEM] * 10) for _ in range(3)]
    gather = Gather(jobs, limit=3, max_bytes=MOST, size_of=int, ordered=ordered, governor=governor)
    assert len(list(gather)) == 30
    gather.close()
    assert governor.most <= (2 + ordered) * ITEM  # the one whose turn it is may always have an item
    assert governor.held == 0


def test_the_same_on_a_loop_and_on_the_way_to_another() -> None:
    governor = Governor(2 * ITEM)

    async def main(shard: Shard) -> None:
        def job() -> AsyncIterator[int]:
            return across(shard, ten, max_bytes=MOST, size_of=int)

        gather = AsyncGather([job] * 3, limit=3, max_bytes=MOST, size_of=int, governor=governor)
        assert len([item async for item in gather]) == 30
        await gather.aclose()
        left = across(shard, endless, max_bytes=MOST, size_of=int)
        assert await anext(left) == ITEM
        await left.aclose()

    with Shard(governor=governor) as shard:
        asyncio.run(main(shard))
    assert governor.held == 0


class Stubborn:
    """Gives items until it is closed, and takes its time with that."""

    def __init__(self) -> None:
        self.closing, self.go_on = threading.Event(), threading.Event()

    async def items(self) -> AsyncIterator[int]:
        try:
            while True:
                yield ITEM
        finally:
            self.closing.set()
            await unbroken(asyncio.to_thread(self.go_on.wait, SOON))


@pytest.mark.parametrize("way", ["across", "gathered"])
def test_who_leaves_while_the_clean_up_is_waited_for_holds_nothing(way: str) -> None:
    governor, stubborn = Governor(MOST), Stubborn()

    async def main(shard: Shard) -> None:
        items: Any
        if way == "across":
            items = across(shard, stubborn.items, max_bytes=3 * ITEM, size_of=int)
        else:
            items = AsyncGather([stubborn.items], limit=1, max_bytes=3 * ITEM, size_of=int, governor=governor)
        assert await anext(items) == ITEM
        closing = asyncio.ensure_future(items.aclose())
        await asyncio.to_thread(stubborn.closing.wait, SOON)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert governor.held == 0
        stubborn.go_on.set()

    with Shard(governor=governor) as shard:
        asyncio.run(main(shard))
    assert governor.held == 0


async def ten() -> AsyncIterator[int]:
    for _ in range(10):
        yield ITEM
