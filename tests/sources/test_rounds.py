"""Rounds of recorders: those with something to take go on together, and the others sleep."""

from __future__ import annotations

import asyncio

from fastflight.sources.rounds import Rounds


def test_only_those_that_are_due_go_on() -> None:
    async def main() -> None:
        rounds = Rounds(0.0)
        due: set[str] = set()
        looks = asyncio.Event()

        def is_due(name: str) -> bool:
            looks.set()
            return name in due

        waits = {
            name: asyncio.ensure_future(rounds.wait(asyncio.Event(), lambda name=name: is_due(name)))  # type: ignore[misc]
            for name in "abc"
        }
        await looks.wait()
        due.update("ab")
        await asyncio.wait({waits["a"], waits["b"]})
        assert not waits["c"].done()
        waits["c"].cancel()
        await asyncio.wait({waits["c"]})
        due.add("c")
        await rounds.wait(asyncio.Event(), lambda: is_due("c"))  # after a pause without anyone

    asyncio.run(main())


def test_one_that_is_woken_does_not_wait_for_a_round() -> None:
    async def main() -> None:
        rounds, arrived = Rounds(3600.0), asyncio.Event()
        waiting = asyncio.ensure_future(rounds.wait(arrived, lambda: False))
        await asyncio.sleep(0)
        arrived.set()
        await waiting

    asyncio.run(main())


def test_a_question_that_fails_wakes_its_recorder_and_stops_no_other() -> None:
    async def main() -> None:
        rounds = Rounds(0.0)
        failing = asyncio.ensure_future(rounds.wait(asyncio.Event(), lambda: bool(1 // 0)))
        other = asyncio.ensure_future(rounds.wait(asyncio.Event(), failing.done))
        await asyncio.wait_for(asyncio.gather(failing, other), 30.0)

    asyncio.run(main())
