"""One-time tickets: used once, in time, and for what they were asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import ResourceExhausted
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.tickets import LIFETIME_SECONDS, MAX_TICKETS, MAX_TICKETS_OF_ONE, Grant, Tickets
from fastflight.service.requests import DeviceSession
from tests.support.clock import ManualClock

GRANT = Grant("repl", DeviceSession(device="demo"), ANYBODY)


def test_a_ticket_is_good_for_its_time() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    late, in_time = tickets.issue(GRANT), tickets.issue(GRANT)
    clock.now = LIFETIME_SECONDS - 0.01
    assert tickets.redeem(in_time, "repl") == GRANT
    clock.now = LIFETIME_SECONDS
    with pytest.raises(HttpRefusal, match="expired"):
        tickets.redeem(late, "repl")


@pytest.mark.parametrize("guess", ["", ".", "x", "x.y", "é.é", "\udc80"])
def test_a_guess_is_refused(guess: str) -> None:
    with pytest.raises(HttpRefusal, match="unknown"):
        Tickets().redeem(guess, "repl")


def test_no_more_wait_than_there_may_be() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    for _ in range(MAX_TICKETS):
        tickets.issue(GRANT)
    with pytest.raises(ResourceExhausted) as raised:
        tickets.issue(GRANT)
    assert (raised.value.limit, raised.value.retry_after_seconds) == (MAX_TICKETS, LIFETIME_SECONDS)
    clock.now = LIFETIME_SECONDS
    tickets.issue(GRANT)


def test_one_name_cannot_take_them_all() -> None:
    tickets = Tickets()
    # Two tokens of one name are one.
    first, second = (Grant("fleet", None, Identity("ada", (), token)) for token in ("old", "new"))
    shown = [tickets.issue(each) for each in [first, second] * (MAX_TICKETS_OF_ONE // 2)]
    for each in (first, second):
        with pytest.raises(ResourceExhausted, match="32 tickets that wait to be used of ada") as raised:
            tickets.issue(each)
        assert (raised.value.scope, raised.value.limit) == ("identity", MAX_TICKETS_OF_ONE)
    tickets.issue(Grant("fleet", None, Identity("bob", ())))
    tickets.redeem(shown[0], "fleet")
    tickets.issue(first)


def test_names_together_cannot_take_them_all() -> None:
    tickets = Tickets()
    names = [f"name-{number}" for number in range(MAX_TICKETS // MAX_TICKETS_OF_ONE)]
    shown = [(name, tickets.issue(granted(name))) for name in names for _ in range(MAX_TICKETS_OF_ONE)]
    assert tickets.redeem(tickets.issue(granted("eve")), "fleet") == granted("eve")
    # The oldest of one that had most is gone, and no other.
    with pytest.raises(HttpRefusal, match="unknown, used or expired"):
        tickets.redeem(shown[0][1], "fleet")
    for name, ticket in shown[1:]:
        assert tickets.redeem(ticket, "fleet") == granted(name)


def granted(name: str) -> Grant:
    return Grant("fleet", None, Identity(name, ()))


@given(
    st.lists(st.sampled_from(["issue", "redeem", "again", "other use", "guess"]) | st.floats(0.1, 20.0), max_size=40)
)
def test_any_order_of_asking_showing_and_waiting(steps: list[str | float]) -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    waiting: dict[str, float] = {}
    used = ["x.y"]
    for step in steps:
        if isinstance(step, float):
            clock.now += step
        elif step == "issue":
            waiting[tickets.issue(GRANT)] = clock.now + LIFETIME_SECONDS
        elif step in ("redeem", "other use") and waiting:
            ticket, until = waiting.popitem()
            used.append(ticket)
            if step == "redeem" and clock.now < until:
                assert tickets.redeem(ticket, "repl") == GRANT
            else:
                with pytest.raises(HttpRefusal):
                    tickets.redeem(ticket, "fleet" if step == "other use" else "repl")
        else:
            # A guess of the number uses the ticket up: it cannot be tried again and again.
            guess = next(iter(waiting), "") + "x" if step == "guess" else used[-1]
            waiting.pop(guess[:-1], None)
            with pytest.raises(HttpRefusal):
                tickets.redeem(guess, "repl")
        assert len(tickets._open) <= len(waiting) + sum(until <= clock.now for until in waiting.values())
