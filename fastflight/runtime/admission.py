"""Admission: limits how many streams and calls run at a time, in all, for each identity and on each device.

A stream or call acquires an `AdmissionTicket` before it begins and releases it when it ends. If there is no room, it
waits for at most `Limits.wait_seconds`. Then it is refused with `ResourceExhausted`, which names the limit and says
when to try again. The number of waiting tickets is limited too, because behind Flight each of them is a thread.

Up to three limits hold for a ticket: that of its identity, that of its device, and that of the whole server, which has
one for streams and one for other calls, so that either kind can be full without the other. A ticket is admitted when
none of them is reached. All waiting tickets form one queue. When a ticket is released, each waiting ticket that now has
room is admitted, the first one first. So a full device does not delay requests for other devices, and requests for the
same device are admitted in the order in which they came.

`acquire` is for threads and `aacquire` for coroutines of any loop; they share the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field

from fastflight.concurrency.channel import loop_event
from fastflight.errors import ResourceExhausted, Stopped

# Flight uses a thread for each open stream. One Python process serves about 256 streams well, and 1,000 if most of them
# are idle, as live sessions are.
MAX_STREAMS = 256
# One stream at a time uses the device; the others wait for it, or only listen. With this limit the clients of one
# device cannot fill the server.
MAX_STREAMS_PER_DEVICE = 64
# Calls are actions and descriptions that ask a device, and listings. Each holds a thread while it runs. This is twice
# the limit of a device, so a device whose calls are all stuck leaves half of the room to the others.
MAX_CALLS = 128
# Each waiting request is a thread that only waits. A longer queue would not serve any request sooner.
MAX_WAITING = 64
# Longer than a small file takes, and short enough for a person who wants to know what is wrong.
WAIT_SECONDS = 5.0
# A client that would wait longer for admission is refused, and can come back.
MAX_WAIT_SECONDS = 300
# A day: in effect no limit.
MAX_SECONDS = 86_400
# The shortest retry time that a refusal gives. Clients should not retry without pause, even if `wait_seconds` is 0.
MIN_RETRY_SECONDS = 1.0
# A client that writes but sends nothing holds a device and a thread. A source of rows that is slower than this, such as
# a person or a sensor that is read once a minute, can collect its rows first, or use a session.
SILENT_SECONDS = 60.0
# A client that does not read its answer holds a device and a thread. People look at a batch for a minute, and programs
# process one for as long. A client that needs longer can request the rest later.
STALLED_SECONDS = 120.0
# The same limit for streams that hold no device, such as a live session. They cost only their room, and rows that their
# clients miss are counted.
STALLED_LIVE_SECONDS = 3600.0
# An interactive session without input keeps the device while nobody else asks for it. After this time another request
# gets the device: by then the person has gone to another window, often to wait there for this device.
IDLE_SECONDS = 60.0
# A server that has been full for this long will hardly have room soon: a load balancer may send clients elsewhere.
OVERLOADED_SECONDS = 10.0
# How often a waiting thread checks whether its client is still connected. The check takes gRPC up to 0.4 ms.
LOOK_SECONDS = 0.2


_Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. They are the table `limits` of a fleet file, where pydantic checks them.

    `per_identity` is None for no such limit: clients without authentication are identified by their address only, so
    all programs of a computer would count as one client.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    streams: Annotated[int, Field(ge=1, strict=True)] = MAX_STREAMS
    """Streams in the whole server."""
    per_identity: Annotated[int | None, Field(ge=1, strict=True)] = None
    """Streams of one identity. Not limited by default."""
    per_device: Annotated[int, Field(ge=1, strict=True)] = MAX_STREAMS_PER_DEVICE
    """Streams of one device."""
    calls: Annotated[int, Field(ge=1, strict=True)] = MAX_CALLS
    """Calls other than streams: actions, descriptions, listings."""
    waiting: Annotated[int, Field(ge=0, strict=True)] = MAX_WAITING
    """Requests that may wait for room."""
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = WAIT_SECONDS
    """How long a request waits for room before it is refused."""
    silent_seconds: _Seconds = SILENT_SECONDS
    """How long a client may send nothing while the server waits for it."""
    stalled_seconds: _Seconds = STALLED_SECONDS
    """How long a client may read nothing of an answer."""
    idle_seconds: _Seconds = IDLE_SECONDS
    """How long an idle interactive session keeps a device that another request wants."""


# What a limit counts: its scope, and for `device` and `identity` the name.
_Key: TypeAlias = tuple[str, str]


class AdmissionTicket:
    """Room for one stream, once it is `admitted`. `Admission.release` takes it back.

    `in_thread`: whether a thread waits and works for the stream. If not, a coroutine does.
    """

    # Its limit in the whole server.
    scope = "server"
    admitted = False
    released = False
    # The connection of its client, as gRPC writes it.
    peer = ""
    # Wakes the thread or coroutine that waits for it. Called once.
    wake: Callable[[], object]
    # What it counts for: its identity and device, if they count, and its scope.
    keys: tuple[_Key, ...] = ()

    def __init__(self, in_thread: bool = True) -> None:
        self.in_thread = in_thread


class CallTicket(AdmissionTicket):
    """Room for one call that is not a stream."""

    scope = "calls"


DEFAULT_LIMITS = Limits()
# The limits that can refuse a request, as `ResourceExhausted.scope` names them.
LIMITED = ("server", "calls", "device", "identity")


class Admission:
    """The limits of one server."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        lock: threading.Lock | None = None,
    ) -> None:
        self.limits = limits
        self._clock = clock
        # Passed in by an owner whose own data must change together with the tickets.
        self._lock = lock or threading.Lock()
        # The limit of each scope.
        self._limit = {
            "server": limits.streams,
            "calls": limits.calls,
            "device": limits.per_device,
            "identity": limits.per_identity or 0,
        }
        self._admitted: dict[str, set[AdmissionTicket]] = {"server": set(), "calls": set()}
        # How many admitted tickets each key has, without those that have none.
        self._used: dict[_Key, int] = {}
        # The queue: a dict, from which a ticket can also leave in the middle.
        self._waiting: dict[AdmissionTicket, None] = {}
        self._closed = False
        self._refusals: Counter[str] = Counter()
        # When a limit of the whole server first refused a request since the last admission; None if it has not.
        self._refusing_since: float | None = None

    @property
    def streams(self) -> Set[AdmissionTicket]:
        """The admitted streams. Hold the lock while you iterate."""
        return self._admitted["server"]

    @property
    def calls(self) -> Set[AdmissionTicket]:
        """The admitted calls that are not streams. Hold the lock while you iterate."""
        return self._admitted["calls"]

    @property
    def waiting(self) -> Set[AdmissionTicket]:
        """The tickets that wait to be admitted."""
        return self._waiting.keys()

    @property
    def refused(self) -> int:
        """How many requests were refused since the start."""
        return self._refusals.total()

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many requests each limit has refused, by its `scope`."""
        return self._refusals

    def levels(self) -> Iterator[tuple[str, int, int]]:
        """Yield the scope of each limit, its size, and how much of it is used. Hold the lock while you iterate.

        For the limits of one device and of one identity, that is the use by the fullest one.
        """
        for scope, limit in self._limit.items():
            if scope != "identity" or self.limits.per_identity is not None:
                yield scope, limit, max((used for key, used in self._used.items() if key[0] == scope), default=0)
        yield "waiting", self.limits.waiting, len(self._waiting)

    @property
    def overloaded(self) -> bool:
        """Whether the server is full, and began to refuse requests `OVERLOADED_SECONDS` ago without admitting any."""
        since = self._refusing_since
        full = any(len(admitted) >= self._limit[scope] for scope, admitted in self._admitted.items())
        return since is not None and full and self._clock() - since >= OVERLOADED_SECONDS

    @property
    def closed(self) -> bool:
        """Whether the server has stopped admitting requests."""
        return self._closed

    def acquire(
        self, ticket: AdmissionTicket, device: str | None, client_name: Callable[[], str], has_left: Callable[[], bool]
    ) -> None:
        """Wait until `ticket` is admitted for work on `device` (None: on no device, or on several).

        `client_name` is called only if identities are limited. Raise `ResourceExhausted` if there is no room in time,
        `Stopped` when the server shuts down or the client has left.
        """
        waiting = threading.Lock()
        waiting.acquire()
        ticket.wake = waiting.release
        self._enter(ticket, device, client_name)
        if ticket.admitted:
            return
        deadline = self._clock() + self.limits.wait_seconds
        try:
            while (rest := deadline - self._clock()) > 0 and not waiting.acquire(timeout=min(rest, LOOK_SECONDS)):
                if has_left():
                    raise Stopped("the client has left")
            self._check(ticket)
        except BaseException:
            self.release(ticket)
            raise

    async def aacquire(self, ticket: AdmissionTicket, device: str | None, client_name: Callable[[], str]) -> None:
        """As `acquire`, for a coroutine. The caller must cancel it when the client leaves."""
        woken, ticket.wake = loop_event()
        self._enter(ticket, device, client_name)
        if ticket.admitted:
            return
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limits.wait_seconds):
                    await woken.wait()
            self._check(ticket)
        except BaseException:
            self.release(ticket)
            raise

    def release(self, ticket: AdmissionTicket) -> None:
        """Take a ticket back, or out of the queue. Does nothing the second time."""
        with self._lock:
            self.leave(ticket)

    def close(self) -> None:
        """Admit nothing from now on. Waiting requests get `Stopped`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for ticket in list(self._waiting):
                if not _wake(ticket):
                    self.leave(ticket)

    def leave(self, ticket: AdmissionTicket) -> None:
        """`release`, for a caller that holds the lock."""
        if ticket.released:
            return
        ticket.released = True
        if not ticket.admitted:
            self._waiting.pop(ticket, None)
            return
        self._admitted[ticket.scope].remove(ticket)
        for key in ticket.keys:
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
        if self._waiting and not self._closed:
            self._admit_waiting()

    def _enter(self, ticket: AdmissionTicket, device: str | None, client_name: Callable[[], str]) -> None:
        """Admit the ticket, or put it into the queue.

        Raise `Stopped` if the server shuts down, `ResourceExhausted` if too many tickets wait already.
        """
        keys: tuple[_Key, ...] = ((ticket.scope, ""),)
        if device is not None:
            keys = (("device", device), *keys)
        if self.limits.per_identity is not None:
            keys = (("identity", client_name()), *keys)
        ticket.keys = keys
        with self._lock:
            if self._closed:
                raise _shutting_down()
            full = self._reached(ticket)
            if full is None:
                self._admit(ticket)
            elif len(self._waiting) >= self.limits.waiting:
                raise self._refusal(full)
            else:
                self._waiting[ticket] = None

    def _reached(self, ticket: AdmissionTicket) -> _Key | None:
        """Return the first limit that keeps the ticket out; None if there is room for it."""
        for key in ticket.keys:
            if self._used.get(key, 0) >= self._limit[key[0]]:
                return key
        return None

    def _admit(self, ticket: AdmissionTicket) -> None:
        for key in ticket.keys:
            self._used[key] = self._used.get(key, 0) + 1
        self._admitted[ticket.scope].add(ticket)
        ticket.admitted = True
        self._refusing_since = None

    def _admit_waiting(self) -> None:
        """Admit each waiting ticket that has room now."""
        for ticket in list(self._waiting):
            if ticket in self._waiting and self._reached(ticket) is None:
                del self._waiting[ticket]
                self._admit(ticket)
                if not _wake(ticket):
                    self.leave(ticket)

    def _check(self, ticket: AdmissionTicket) -> None:
        """Return if the ticket is admitted; else raise why it is not."""
        with self._lock:
            if ticket.admitted:
                return
            raise _shutting_down() if self._closed else self._refusal(self._reached(ticket) or ticket.keys[-1])

    def _refusal(self, full: _Key) -> ResourceExhausted:
        scope, name = full
        limit = self._limit[scope]
        if scope in ("server", "calls") and self._refusing_since is None:
            self._refusing_since = self._clock()
        self._refusals[scope] += 1
        one = limit == 1
        streams = "1 stream is" if one else f"{limit} streams are"
        calls = "1 call is" if one else f"{limit} calls are"
        either = "1 stream or call is" if one else f"{limit} streams and calls are"
        # An own source is limited as a device is, by the name `source NAME`. Names of devices have no spaces.
        kind = "source" if name.startswith("source ") else "device"
        what = {
            "server": f"{streams} open, as many as the server takes",
            "calls": f"{calls} under way, as many as the server takes",
            "identity": f"{either} open from this client, as many as one may have",
            "device": f"{either} open on this {kind}, as many as it may have",
        }[scope]
        seconds = max(MIN_RETRY_SECONDS, self.limits.wait_seconds)
        return ResourceExhausted(
            what,
            scope=scope,
            limit=limit,
            retry_after_seconds=seconds,
            where=name if scope == "device" else "",
            hint=f"End one that is no longer needed, or try again in {math.ceil(seconds)} s",
        )


def _shutting_down() -> Stopped:
    return Stopped("the server shuts down", hint="Ask again when it is back")


def _wake(ticket: AdmissionTicket) -> bool:
    """End the wait for the ticket. Return False if the loop of the coroutine that waits is closed for good."""
    try:
        ticket.wake()
    except RuntimeError:
        return False
    return True
