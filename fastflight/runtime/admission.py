"""Admission: how many streams and calls there may be at a time, in all, of one identity and on one device.

Each asks for a `AdmissionTicket` before it begins and gives it back when it is over. One that finds no room waits, for
`Limits.wait_seconds` at most, then it is refused with `ResourceExhausted`, which says which limit was met and when to
try again. The waiting ones are limited as well, since behind Flight each of them is a thread.

A place is had by passing three gates: its identity's, its device's, and last the server's for streams, or for calls
that are no streams: whoever fills one of these leaves the other open. Each lets them through in the order
in which they came to it, and who leaves hands its room to the next one there, so nobody slips in between. Who waits at
a later gate keeps its room behind the earlier ones: nobody is overtaken without end, and a full device holds up nobody
who asks for another one. All pass the gates in the same order, so none wait in a ring.

`acquire` is for threads and `aacquire` for coroutines of any loop; they share the gates.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

from fastflight.errors import ResourceExhausted, Stopped

# Flight holds a thread per open stream: 256 are about as many as one process of Python serves well. 1,000 work where
# most of them are idle, as live sessions are.
MAX_STREAMS = 256
# One at a time has the device, the others wait for it or look on: so many that a device whose clients multiply cannot
# fill the server.
MAX_STREAMS_PER_DEVICE = 64
# Actions and descriptions that ask a device, and listings: as long as they take, each holds a thread. So many that a
# device at which as many are stuck as one may have leaves half of them to the others.
MAX_CALLS = 128
# Each is a thread that only waits; more of them than this are not served any sooner for being here.
MAX_WAITING = 64
# Longer than a small file takes; short enough for a person, who wants to know what is wrong.
WAIT_SECONDS = 5.0
# A server that lets nobody wait still does not want to be asked without pause.
MIN_RETRY_SECONDS = 1.0
# A client that writes and says nothing holds a device and a thread. The slowest source of rows that is worth a write, a
# person's hand or a sensor that is asked once a minute, gives them in one go, or uses a session.
SILENT_SECONDS = 60.0
# A client that reads and takes nothing has a device held for it, and a thread. People look at a batch for a minute, and
# programs work on one for as long; who does so for longer asks for the rest when they want it.
STALLED_SECONDS = 120.0
# The same where no device is held: a live session costs its place, and what it misses is counted.
STALLED_LIVE_SECONDS = 3600.0
# An interactive session in which nothing is typed keeps the device while nobody else asks for it. After this time
# another request gets it: a person has gone to another window by then, often to wait there for this device.
IDLE_SECONDS = 60.0
# A server that had room for nobody for so long is no better in a moment: a balancer may send clients elsewhere.
OVERLOADED_SECONDS = 10.0
# How often a waiting thread looks whether its client is still there. gRPC takes up to 0.4 ms to say.
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server admits.

    `per_identity` is None for no limit of its own: who is not authenticated is known by the address alone, and then all
    programs of a computer are one.
    """

    streams: int = MAX_STREAMS
    per_identity: int | None = None
    per_device: int = MAX_STREAMS_PER_DEVICE
    calls: int = MAX_CALLS
    waiting: int = MAX_WAITING
    wait_seconds: float = WAIT_SECONDS
    # How long a client that is to send may send nothing.
    silent_seconds: float = SILENT_SECONDS
    # How long one that reads may take nothing of what is there for it.
    stalled_seconds: float = STALLED_SECONDS
    # How long an exchange that has a device may send nothing when somebody else asks for it.
    idle_seconds: float = IDLE_SECONDS


class _Gate:
    """Room for `limit` places, and who waits for it. `users` are those for whom it must stay the same gate."""

    __slots__ = ("inside", "key", "limit", "users", "waiting")

    def __init__(self, key: tuple[str, str], limit: int) -> None:
        self.key = key
        self.limit = limit
        # Those that have passed it.
        self.inside: set[AdmissionTicket] = set()
        self.users = 0
        self.waiting: deque[AdmissionTicket] = deque()


class AdmissionTicket:
    """Room for one stream, once it is `admitted`. `Admission.release` takes it back.

    `in_thread`: it is a thread that waits and works here.
    """

    # Which of the last gates it has to pass.
    scope = "server"
    # As nearly all begin: it is not worth setting them for each.
    # How many of the gates it has passed.
    passed = 0
    admitted = False
    left = False
    # The connection that it came by, as gRPC says it.
    peer = ""
    wake: Callable[[], object] | None = None
    gates: tuple[_Gate, ...] = ()

    def __init__(self, in_thread: bool = True) -> None:
        self.in_thread = in_thread


class CallTicket(AdmissionTicket):
    """Room for one call that is no stream."""

    scope = "calls"


DEFAULT_LIMITS = Limits()
# Limits that somebody may meet, as `ResourceExhausted.scope` names them.
LIMITED = ("server", "calls", "device", "identity")


class Admission:
    """The gates of one server."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        lock: threading.Lock | None = None,
    ) -> None:
        self.limits = limits
        self._clock = clock
        # Given where it also guards what depends on who is inside.
        self._lock = lock or threading.Lock()
        self._streams, self._calls = _Gate(("server", ""), limits.streams), _Gate(("calls", ""), limits.calls)
        self._last = {gate.key[0]: (gate,) for gate in (self._streams, self._calls)}
        # Those of identities and devices, while somebody uses them.
        self._gates: dict[tuple[str, str], _Gate] = {}
        self._waiting: set[AdmissionTicket] = set()
        self._closed = False
        self._refusals: Counter[str] = Counter()
        # When the first was refused since the last that was admitted.
        self._refusing_since: float | None = None

    @property
    def streams(self) -> Set[AdmissionTicket]:
        """Those that are admitted. To be iterated under the lock."""
        return self._streams.inside

    @property
    def calls(self) -> Set[AdmissionTicket]:
        """The same of calls that are no streams."""
        return self._calls.inside

    @property
    def waiting(self) -> Set[AdmissionTicket]:
        """Those that wait for a place."""
        return self._waiting

    @property
    def refused(self) -> int:
        """How many were told that there is no room, since the start."""
        return self._refusals.total()

    @property
    def refusals(self) -> Mapping[str, int]:
        """The same by the `scope` of the limit that was met."""
        return self._refusals

    def levels(self) -> Iterator[tuple[str, int, int]]:
        """Each limit by its scope: its size, and how much is used, by the fullest where there are several.

        To be iterated under the lock.
        """
        limits = self.limits
        for scope, limit, gates in (
            ("server", limits.streams, [self._streams]),
            ("calls", limits.calls, [self._calls]),
            ("device", limits.per_device, self._all_of("device")),
            ("identity", limits.per_identity, self._all_of("identity")),
        ):
            if limit is not None:
                yield scope, limit, max((len(gate.inside) for gate in gates), default=0)
        yield "waiting", limits.waiting, len(self._waiting)

    @property
    def overloaded(self) -> bool:
        """Whether this server has had room for nobody for `OVERLOADED_SECONDS`, whatever they asked, and has none."""
        since = self._refusing_since
        full = any(len(gate.inside) >= gate.limit for gate in (self._streams, self._calls))
        return since is not None and full and self._clock() - since >= OVERLOADED_SECONDS

    @property
    def closed(self) -> bool:
        """Whether nobody is admitted any more."""
        return self._closed

    def acquire(
        self, place: AdmissionTicket, device: str | None, who: Callable[[], str], left: Callable[[], bool]
    ) -> None:
        """Have `place` admitted, for something on `device` (None: on none, or on several).

        `who` tells the identity, where that matters. `ResourceExhausted` when there is no room in time, `Stopped` when
        the server shuts down or the client has `left`.
        """
        self._enter(place, device, who)
        if place.admitted:
            return
        woken = threading.Event()
        deadline = self._clock() + self.limits.wait_seconds
        try:
            self._wake_by(place, woken.set)
            while (rest := deadline - self._clock()) > 0 and not woken.wait(min(rest, LOOK_SECONDS)):
                if left():
                    raise Stopped("the client has left")
            self._check(place)
        except BaseException:
            self.release(place)
            raise

    async def aacquire(self, place: AdmissionTicket, device: str | None, who: Callable[[], str]) -> None:
        """The same from a coroutine. Who leaves cancels it."""
        self._enter(place, device, who)
        if place.admitted:
            return
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        try:
            self._wake_by(place, lambda: loop.call_soon_threadsafe(woken.set))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limits.wait_seconds):
                    await woken.wait()
            self._check(place)
        except BaseException:
            self.release(place)
            raise

    def release(self, place: AdmissionTicket) -> None:
        """Take a place back, or out of the queue. Does nothing the second time."""
        with self._lock:
            self.leave(place)

    def close(self) -> None:
        """Admit nobody any more, and tell those that wait."""
        with self._lock:
            self._closed = True
            for place in list(self._waiting):
                if not _woken(place):
                    self.leave(place)

    def leave(self, place: AdmissionTicket) -> None:
        """`release`, for who has the lock already."""
        if place.left:
            return
        place.left = True
        if not place.admitted:
            self._waiting.discard(place)
            place.gates[place.passed].waiting.remove(place)
        for gate in place.gates[: place.passed]:
            gate.inside.remove(place)
            if gate.waiting and not self._closed:
                self._hand_over(gate)
        for gate in place.gates[:-1]:
            gate.users -= 1
            if not gate.users:
                del self._gates[gate.key]

    def _enter(self, place: AdmissionTicket, device: str | None, who: Callable[[], str]) -> None:
        """Have it admitted, or stand in the queue of the first gate that is full."""
        per_identity = self.limits.per_identity
        identity = "" if per_identity is None else who()
        with self._lock:
            if self._closed:
                raise _shutting_down()
            gates: tuple[_Gate, ...] = self._last[place.scope]
            if device is not None:
                gates = (self._gate("device", device, self.limits.per_device), *gates)
            if per_identity is not None:
                gates = (self._gate("identity", identity, per_identity), *gates)
            if len(self._waiting) >= self.limits.waiting:
                for gate in gates:
                    if len(gate.inside) >= gate.limit:
                        raise self._refusal(gate)
            place.gates = gates
            for gate in gates[:-1]:
                gate.users += 1
                self._gates[gate.key] = gate
            self._advance(place)
            if not place.admitted:
                self._waiting.add(place)

    def _all_of(self, kind: str) -> list[_Gate]:
        return [gate for key, gate in self._gates.items() if key[0] == kind]

    def _gate(self, kind: str, name: str, limit: int) -> _Gate:
        key = (kind, name)
        return self._gates.get(key) or _Gate(key, limit)

    def _wake_by(self, place: AdmissionTicket, wake: Callable[[], object]) -> None:
        """Have `wake` called when there is no more to wait for."""
        with self._lock:
            place.wake = wake
            if place.admitted or self._closed:
                wake()

    def _check(self, place: AdmissionTicket) -> None:
        """Return if it is admitted; else say why it is not."""
        with self._lock:
            if place.admitted:
                return
            raise _shutting_down() if self._closed else self._refusal(place.gates[place.passed])

    def _advance(self, place: AdmissionTicket) -> None:
        """Through every gate that has room; into the queue of the first that has none."""
        for gate in place.gates[place.passed :]:
            if len(gate.inside) >= gate.limit:
                gate.waiting.append(place)
                return
            gate.inside.add(place)
            place.passed += 1
        place.admitted = True
        self._refusing_since = None

    def _hand_over(self, gate: _Gate) -> None:
        """Let the next one through."""
        following = gate.waiting.popleft()
        self._advance(following)
        if following.admitted:
            self._waiting.discard(following)
            if not _woken(following):
                self.leave(following)

    def _refusal(self, gate: _Gate) -> ResourceExhausted:
        if gate.key[0] in ("server", "calls"):
            self._refused_all()
        self._refusals[gate.key[0]] += 1
        scope, name = gate.key
        one = gate.limit == 1
        streams = "1 stream is" if one else f"{gate.limit} streams are"
        calls = "1 call is" if one else f"{gate.limit} calls are"
        either = "1 stream or call is" if one else f"{gate.limit} streams and calls are"
        what = {
            "server": f"{streams} open, as many as the server takes",
            "calls": f"{calls} under way, as many as the server takes",
            "identity": f"{either} open from this client, as many as one may have",
            "device": f"{either} open on this device, as many as it may have",
        }[scope]
        seconds = max(MIN_RETRY_SECONDS, self.limits.wait_seconds)
        return ResourceExhausted(
            what,
            scope=scope,
            limit=gate.limit,
            retry_after_seconds=seconds,
            where=name if scope == "device" else "",
            hint=f"End one that is no longer needed, or try again in {math.ceil(seconds)} s",
        )

    def _refused_all(self) -> None:
        """One was refused that asked for nothing in particular."""
        if self._refusing_since is None:
            self._refusing_since = self._clock()


def _shutting_down() -> Stopped:
    return Stopped("the server shuts down", hint="Ask again when it is back")


def _woken(place: AdmissionTicket) -> bool:
    """Tell who waits for `place`. False when its loop is closed: it will never run again."""
    try:
        if place.wake is not None:  # else it is about to look by itself
            place.wake()
    except RuntimeError:
        return False
    return True
