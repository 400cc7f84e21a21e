"""From one thread to another: order, room, and an end that both sides can bring about."""

from __future__ import annotations

import threading

import pytest

from fastflight.concurrency.inbox import Inbox
from fastflight.errors import DataError, Stopped

SOON = 20.0


def test_items_come_in_order_and_then_the_end() -> None:
    inbox: Inbox[int] = Inbox(10, lambda: True)
    for item in range(3):
        inbox.put(item, 1)
    inbox.finish()
    assert list(inbox) == [0, 1, 2]


def test_an_error_comes_after_the_items_before_it() -> None:
    inbox: Inbox[int] = Inbox(10, lambda: True)
    inbox.put(1, 1)
    inbox.fail(DataError("bad"))
    assert next(inbox) == 1
    with pytest.raises(DataError):
        next(inbox)


def test_who_puts_waits_for_room() -> None:
    inbox: Inbox[int] = Inbox(1, lambda: True)
    putting = threading.Thread(target=lambda: [inbox.put(item, 1) for item in range(50)] and inbox.finish())
    putting.start()
    assert list(inbox) == list(range(50))
    putting.join()


def test_closed_it_ends_for_both() -> None:
    inbox: Inbox[int] = Inbox(1, lambda: True)
    refused = threading.Event()

    def put() -> None:
        try:
            while True:
                inbox.put(0, 1)
        except Stopped:
            refused.set()

    threading.Thread(target=put).start()
    assert next(inbox) == 0
    inbox.close()
    assert refused.wait(SOON)
    assert list(inbox) == []


def test_nobody_waits_for_what_is_not_wanted() -> None:
    inbox: Inbox[int] = Inbox(1, lambda: False)
    inbox.put(0, 1)
    with pytest.raises(Stopped):
        inbox.put(1, 1)


@pytest.mark.parametrize("finished", [False, True])
def test_a_failure_at_once_overtakes_what_waits_and_nothing_comes_after_it(finished: bool) -> None:
    inbox: Inbox[int] = Inbox(3, lambda: True)
    for item in range(3):
        inbox.put(item, 1)
    assert next(inbox) == 0
    if finished:
        inbox.finish()
    inbox.fail(DataError("broke off"), at_once=True)
    with pytest.raises(Stopped):
        inbox.put(3, 1)
    with pytest.raises(DataError):
        next(inbox)
    assert not inbox.exhausted


def test_who_takes_its_time_over_an_item_sees_that_it_is_not_wanted() -> None:
    inbox: Inbox[int] = Inbox(3, lambda: True)
    inbox.put(0, 1)
    assert next(inbox) == 0
    inbox.check()
    inbox.fail(DataError("the last of them was bad"))
    inbox.check()
    inbox.fail(Stopped("the client has left"), at_once=True)
    with pytest.raises(DataError, match="the last of them"):
        inbox.check()


def test_one_that_has_seen_the_end_is_told_that_it_was_none() -> None:
    told: list[BaseException | None] = []
    inbox: Inbox[int] = Inbox(10, lambda: True)
    inbox.when_dropped(lambda: told.append(inbox.dropped))
    inbox.put(1, 1)
    inbox.finish()
    assert list(inbox) == [1]
    assert inbox.dropped is None
    error = DataError("given up")
    inbox.fail(error, at_once=True)
    assert told == [error]


def test_one_that_has_not_hears_it_where_the_end_would_be() -> None:
    inbox: Inbox[int] = Inbox(10, lambda: True)
    inbox.when_dropped(pytest.fail)
    inbox.put(1, 1)
    inbox.finish()
    inbox.fail(DataError("given up"), at_once=True)
    with pytest.raises(DataError):
        next(inbox)
