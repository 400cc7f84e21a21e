"""Who is admitted, who waits, and in which order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.errors import ResourceExhausted, Stopped
from fastflight.runtime.admission import Admission, AdmissionTicket, Limits
from tests.support.refusals import refused
from tests.support.waiting import auntil

SOON = 60.0


def never() -> bool:
    return False


def acquired(
    admission: Admission,
    identity: str,
    device: str | None,
    left: Callable[[], bool] = never,
    place: AdmissionTicket | None = None,
) -> AdmissionTicket:
    place = place or AdmissionTicket()
    admission.acquire(place, device, lambda: identity, left)
    return place


async def aacquired(admission: Admission, identity: str, device: str | None) -> AdmissionTicket:
    place = AdmissionTicket(in_thread=False)
    await admission.aacquire(place, device, lambda: identity)
    return place


def limits(streams: int = 100, **others: float) -> Limits:
    return Limits(streams=streams, **{"wait_seconds": SOON, **others})  # type: ignore[arg-type]


def counted(admission: Admission) -> int:
    """The identities and devices that are counted."""
    return sum(scope in ("identity", "device") for scope, _ in admission._used)


@pytest.mark.parametrize(
    ("given_limits", "said", "scope", "where"),
    [
        (limits(2, waiting=0), "2 streams are open, as many as the server takes", "server", ""),
        (limits(per_identity=2, waiting=0), "2 streams and calls are open from this client", "identity", ""),
        (limits(per_device=2, waiting=0), "2 streams and calls are open on this device", "device", "demo"),
        (limits(per_device=2, waiting=0), "are open on this source, as many", "device", "source sales"),
    ],
)
def test_the_limit_that_is_met_is_named(given_limits: Limits, said: str, scope: str, where: str) -> None:
    admission = Admission(given_limits)
    for _ in range(2):
        acquired(admission, "me", where or "demo")
    with pytest.raises(ResourceExhausted) as raised:
        acquired(admission, "me", where or "demo", lambda: pytest.fail("it waits"))
    error = raised.value
    assert said in error.what
    assert (error.scope, error.limit, error.retry_after_seconds, error.where) == (scope, 2, SOON, where)
    assert f"try again in {SOON:.0f} s" in str(error)
    assert admission.refused == 1


def test_identities_and_devices_have_room_of_their_own() -> None:
    admission = Admission(limits(per_identity=1, per_device=1, waiting=0))
    mine = acquired(admission, "me", "demo")
    acquired(admission, "you", "other")
    with refused(ResourceExhausted, scope="device", where="demo"):
        acquired(admission, "them", "demo")
    acquired(admission, "them", None)
    admission.release(mine)
    admission.release(mine)
    acquired(admission, "me", "demo")
    with refused(ResourceExhausted, scope="identity"):
        acquired(admission, "me", None)


def test_what_is_over_leaves_nothing_behind() -> None:
    admission = Admission(limits())
    places = [acquired(admission, f"client {number}", f"device {number}") for number in range(20)]
    assert counted(admission) == 20
    for place in places:
        admission.release(place)
    assert counted(admission) == 0


def test_without_patience_the_refusal_comes_at_once_and_asks_for_a_second() -> None:
    admission = Admission(limits(1, wait_seconds=0))
    acquired(admission, "me", None)
    with pytest.raises(ResourceExhausted) as raised:
        acquired(admission, "me", None)
    assert raised.value.retry_after_seconds == 1
    assert len(admission.waiting) == 0


async def test_a_coroutine_without_patience_is_refused_too() -> None:
    admission = Admission(limits(1, wait_seconds=0))
    place = await aacquired(admission, "me", None)
    with pytest.raises(ResourceExhausted):
        await aacquired(admission, "me", None)
    admission.release(place)
    assert (len(admission.waiting), counted(admission)) == (0, 0)


def test_a_client_that_leaves_while_it_waits_leaves_the_queue() -> None:
    admission = Admission(limits(1))
    place = acquired(admission, "me", None)
    with pytest.raises(Stopped, match="the client has left"):
        acquired(admission, "me", None, lambda: True)
    assert len(admission.waiting) == 0
    admission.release(place)
    assert counted(admission) == 0


async def test_closing_tells_those_that_wait_and_those_that_come() -> None:
    admission = Admission(limits(1))
    place = acquired(admission, "me", "demo")
    ended: list[str] = []

    def wait() -> None:
        with pytest.raises(Stopped, match="the server shuts down"):
            acquired(admission, "me", "demo")
        ended.append("thread")

    thread = threading.Thread(target=wait)
    thread.start()
    task = asyncio.create_task(aacquired(admission, "you", None))
    await auntil(lambda: len(admission.waiting) == 2)
    admission.close()
    with pytest.raises(Stopped, match="the server shuts down"):
        await task
    await asyncio.to_thread(thread.join)
    assert ended == ["thread"]
    with pytest.raises(Stopped):
        acquired(admission, "me", None)
    admission.release(place)
    assert (len(admission.waiting), counted(admission)) == (0, 0)


def test_a_waiter_cancelled_in_the_moment_it_is_admitted_passes_its_place_on() -> None:
    async def run(turns: int) -> bool:
        admission = Admission(limits(1))
        place = await aacquired(admission, "me", None)
        first = asyncio.create_task(aacquired(admission, "me", None))
        second = asyncio.create_task(aacquired(admission, "you", None))
        await asyncio.sleep(0)
        admission.release(place)
        for _ in range(turns):
            await asyncio.sleep(0)
        if in_time := first.done():
            admission.release(first.result())
        else:
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        admission.release(await second)
        assert (len(admission.waiting), counted(admission)) == (0, 0)
        return not in_time

    for turns in itertools.takewhile(lambda turns: asyncio.run(run(turns)), itertools.count()):
        assert turns < 10


def test_a_waiter_whose_loop_has_ended_is_passed_over() -> None:
    admission = Admission(limits(1))
    place = acquired(admission, "me", None)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(aacquired(admission, "dead", None))
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # it ends with its loop, on purpose
    loop.close()
    admission.release(place)
    acquired(admission, "me", None)
    assert len(admission.waiting) == 0


@dataclass
class AdmissionClient:
    """One that wants a stream, in the order of their coming."""

    identity: str
    device: str | None
    task: asyncio.Task[AdmissionTicket]
    place: AdmissionTicket | None = None


@dataclass
class AdmissionCrowd:
    """What is known from outside of who is in and who waits."""

    admission: Admission
    clients: list[AdmissionClient] = field(default_factory=list)
    order: list[AdmissionClient] = field(default_factory=list)

    def come(self, identity: str, device: str | None) -> None:
        self.clients.append(
            AdmissionClient(identity, device, asyncio.create_task(aacquired(self.admission, identity, device)))
        )

    def inside(self) -> list[AdmissionClient]:
        return [client for client in self.clients if client.place is not None]

    def outside(self) -> list[AdmissionClient]:
        return [client for client in self.clients if client.place is None]

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)
        for client in self.outside():
            if client.task.done():
                client.place = client.task.result()
                self.order.append(client)

    async def leave(self, client: AdmissionClient) -> None:
        self.clients.remove(client)
        if client.place is not None:
            self.admission.release(client.place)
            return
        client.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.task

    def check(self) -> None:
        chosen = self.admission.limits
        inside = self.inside()
        assert len(inside) <= chosen.streams
        assert all(count <= (chosen.per_identity or 0) for count in Counter(c.identity for c in inside).values())
        assert all(count <= chosen.per_device for count in Counter(c.device for c in inside if c.device).values())
        assert len(self.admission.waiting) == len(self.outside())
        for waiting in self.outside():  # for a reason: one of its limits is met by those who are here
            others = [client for client in self.clients if client is not waiting]
            assert (
                len(others) >= chosen.streams
                or sum(c.identity == waiting.identity for c in others) >= (chosen.per_identity or 0)
                or (waiting.device and sum(c.device == waiting.device for c in others) >= chosen.per_device)
            )
            # First come, first served among those who want the same.
            same = [c for c in self.clients if (c.identity, c.device) == (waiting.identity, waiting.device)]
            assert all(c.place is None for c in same[same.index(waiting) :])


come = st.tuples(st.just("come"), st.sampled_from("abc"), st.sampled_from(["x", "y", None]))
leave = st.tuples(st.sampled_from(["end", "give up"]), st.integers(0, 30), st.none())


@settings(deadline=None)
@given(
    streams=st.integers(1, 5),
    per_identity=st.integers(1, 4),
    per_device=st.integers(1, 3),
    steps=st.lists(come | leave, max_size=40),
)
def test_limits_hold_and_everybody_gets_a_turn(
    streams: int, per_identity: int, per_device: int, steps: list[tuple[str, str | int, str | None]]
) -> None:
    async def run() -> None:
        admission = Admission(limits(streams, per_identity=per_identity, per_device=per_device, waiting=100))
        crowd = AdmissionCrowd(admission)
        for step, chosen, device in steps:
            if isinstance(chosen, str):
                crowd.come(chosen, device)
            elif among := (crowd.inside() if step == "end" else crowd.outside()):
                await crowd.leave(among[chosen % len(among)])
            await crowd.settle()
            crowd.check()
        while crowd.clients:
            assert crowd.inside(), "all wait, and for nobody"
            await crowd.leave(crowd.inside()[0])
            await crowd.settle()
            crowd.check()
        assert counted(admission) == 0

    asyncio.run(run())


def test_threads_and_loops_share_the_room() -> None:
    admission = Admission(limits(3, per_identity=2, per_device=2))
    inside: list[int] = []
    most: list[int] = []

    def used(place: AdmissionTicket) -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()
        admission.release(place)

    def in_thread(identity: str) -> None:
        for _ in range(50):
            used(acquired(admission, identity, "demo"))

    async def in_loop() -> None:
        async def use(identity: str) -> None:
            for _ in range(50):
                place = await aacquired(admission, identity, "demo")
                await asyncio.sleep(0)
                used(place)

        await asyncio.gather(*(use(f"client {number % 2}") for number in range(4)))

    threads = [threading.Thread(target=in_thread, args=(f"client {number % 2}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(in_loop())
    for thread in threads:
        thread.join()
    assert max(most) <= 2
    assert (len(admission.waiting), admission.refused, counted(admission)) == (0, 0, 0)
