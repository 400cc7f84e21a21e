"""Coroutines that are run in a thread, without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest

from fastflight.concurrency.blocking import Blocking, NonBlocking, finish

closed: list[str] = []


def numbers() -> Generator[int, None, None]:
    try:
        yield from range(3)
        raise ValueError("the end")
    finally:
        closed.append("iterator")


async def doubled(items: NonBlocking[int]) -> AsyncGenerator[int, None]:
    try:
        async for item in items:
            yield 2 * item
    finally:
        await items.aclose()
        closed.append("generator")


def test_what_a_coroutine_returns_and_raises() -> None:
    async def divided(by: int) -> float:
        return 1 / by

    assert finish(divided(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        finish(divided(0))


def test_a_coroutine_that_suspends_is_refused() -> None:
    with pytest.raises(RuntimeError, match="has suspended"):
        finish(asyncio.sleep(0))


def test_items_pass_in_order_and_then_the_error() -> None:
    items = Blocking(doubled(NonBlocking(numbers())))
    assert [next(items) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(ValueError, match="the end"):
        next(items)
    assert list(Blocking(NonBlocking([1, 2]))) == [1, 2]


def test_closing_closes_what_is_below() -> None:
    closed.clear()
    items = Blocking(doubled(NonBlocking(numbers())))
    next(items)
    items.close()
    assert closed == ["iterator", "generator"]
    assert list(items) == []


def test_what_has_not_begun_is_closed_as_well() -> None:
    closed.clear()
    generator = numbers()
    next(generator)
    Blocking(NonBlocking(generator)).close()
    assert closed == ["iterator"]
