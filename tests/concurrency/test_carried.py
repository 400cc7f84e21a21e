"""Iterators that keep their maker's context variables."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator

import pytest

from fastflight.concurrency.carried import Carried

WHOSE: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")


def steps(seen: list[str]) -> Iterator[int]:
    try:
        yield 1
        seen.append(WHOSE.get())
        yield 2
        raise ValueError(WHOSE.get())
    finally:
        seen.append(f"end: {WHOSE.get()}")


def made(seen: list[str]) -> Carried[int]:
    WHOSE.set("a's")
    return Carried(steps(seen))


def test_each_step_and_the_end_see_what_the_maker_had_set() -> None:
    seen: list[str] = []
    items = contextvars.copy_context().run(made, seen)
    assert WHOSE.get() == "nobody's"
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="a's"):
        next(items)
    assert seen == ["a's", "end: a's"]


def test_closed_early_it_closes_what_it_iterates_there() -> None:
    seen: list[str] = []
    items = contextvars.copy_context().run(made, seen)
    next(items)
    items.close()
    assert seen == ["end: a's"]
    Carried(iter(())).close()
