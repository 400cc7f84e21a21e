"""Whether what readers wait for is still wanted: asked for all of them, and never of one that has gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fastflight.concurrency.lookout import MOST_SHARE, ROUND_SECONDS, Lookout, Watch, pause_after

SOON = 10.0


@pytest.fixture
def lookout() -> Iterator[Lookout]:
    lookout = Lookout()
    yield lookout
    lookout.close()


def test_one_that_waits_in_vain_is_told_so_and_the_others_are_not(lookout: Lookout) -> None:
    leaves, told, others = threading.Event(), threading.Event(), threading.Event()
    stays = Watch(lambda: True, others.set)
    left = Watch(lambda: not leaves.is_set(), told.set)
    lookout.add(stays)
    lookout.add(left)
    leaves.set()
    assert told.wait(SOON)
    assert left.in_vain
    assert left.why is None
    assert not stays.in_vain
    assert not others.is_set()


def test_what_the_question_raises_is_kept_for_the_reader(lookout: Lookout) -> None:
    told = threading.Event()

    def raises() -> bool:
        raise SystemExit("as much as a failure can be")

    watch = Watch(raises, told.set)
    lookout.add(watch)
    assert told.wait(SOON)
    assert isinstance(watch.why, SystemExit)
    again = threading.Event()
    lookout.add(Watch(lambda: False, again.set))
    assert again.wait(SOON)


def test_it_is_told_once(lookout: Lookout) -> None:
    told: list[int] = []
    watch = Watch(lambda: False, lambda: told.append(1))
    for _ in range(3):
        watch.ask()
    assert told == [1]


def test_one_that_was_removed_is_not_asked_again_and_removing_waits_for_a_question(lookout: Lookout) -> None:
    asked, answer, removed = threading.Event(), threading.Event(), threading.Event()
    gone = False

    def wanted() -> bool:
        assert not gone
        asked.set()
        answer.wait(SOON)
        return True

    watch = Watch(wanted, lambda: None)
    lookout.add(watch)
    assert asked.wait(SOON)

    def remove() -> None:
        lookout.remove(watch)
        removed.set()

    remover = threading.Thread(target=remove)
    remover.start()
    assert not removed.is_set()
    answer.set()
    assert removed.wait(SOON)
    gone = True
    watch.ask()
    remover.join()


def test_a_closed_one_asks_nobody(lookout: Lookout) -> None:
    lookout.close()
    lookout.add(Watch(lambda: False, lambda: pytest.fail("asked")))
    lookout.close()


@pytest.mark.parametrize("spent", [0.0, 0.001, 0.01, 0.07, 1.0])
def test_rounds_that_take_long_are_further_apart(spent: float) -> None:
    pause = pause_after(spent)
    assert pause >= ROUND_SECONDS
    assert spent / (spent + pause) <= MOST_SHARE + 1e-9


def test_as_many_as_can_be_asked_in_time_are() -> None:
    assert pause_after(0.01) == ROUND_SECONDS
