"""What a server does about each device: takes it, uses it, and gives it up. No I/O and no clock.

`look` returns the next steps: a `Put` for the bucket, or to `Begin` or `End` the use of a device. Each device has one
step under way; report its result by `put_ended`, `begun`, `failed` or `ended`. What was seen in the bucket comes by way
of the directory. Before each write to a board, ask `may_write`.

A server uses a device only under an entry that names it and the term of its lease, as long as that lease is held. Each
use begins with numbers of traffic of its own, which its entry has reserved. So an entry is used only once: a device
that was given up, or was to be given up, is used again only after its entry was replaced. Requests that are still on
their way are refused then, because they name an earlier revision.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol

from fastflight.cluster.directory import Directory
from fastflight.cluster.entries import DeviceEntry, Put
from fastflight.cluster.membership import RETRY_SECONDS, Membership
from fastflight.cluster.placement import Plan

# Numbers of traffic that an entry reserves. They last for a quarter of an hour at the largest rate, a million in a
# second, and the entry is written again when half of them are used.
RESERVED_NUMBERS = 1_000_000_000
# A device that cannot be taken over is left to other servers for this long, and stays there.
REFUSED_SECONDS = 30.0
# Each device is looked at once in so many looks that have no reason of their own: every five seconds. Of few devices,
# at least so many are looked at each time.
PARTS = 25
LEAST_LOOKED_AT = 60
# Devices that move to other servers at the same time.
MAX_MOVING = 32
# Steps under way, of which most wait for NATS.
MAX_STEPS = 256
# Of them, those that store something.
MAX_PUTS = 64
FIRST_PUTS = 4
# Answers are quick up to this time, and slow from that one on. A renewal has a few seconds.
QUICK_SECONDS, SLOW_SECONDS = 0.1, 0.25
# With each quick answer, and with slow ones: at most once in the time that an answer takes.
GROWTH, SHRINKAGE = 0.5, 0.5


class Usage(Protocol):
    """How the devices of this server are used. The methods return at once."""

    def is_idle(self, device: str) -> bool:
        """Whether the device can be given up now without breaking off a transfer."""

    def next_seq(self, device: str) -> int:
        """The number of the device's next chunk of traffic."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin to use a device. Its traffic has numbers from `first_seq` on."""

    device: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class End:
    """End the use of a device. `to`: the server to which it moves; empty if it does not move.

    `lost`: it is not this server's any more, so another one may use it at any moment.
    """

    device: str
    to: str = ""
    lost: bool = False


Step = Put | Begin | End


@dataclass(slots=True)
class Claim:
    """One device. `term`: that under which it may be written to; 0: it may not."""

    device: str
    in_use: bool = False
    # A step is under way.
    is_busy: bool = False
    term: int = 0
    # The revision of the entry under which it is in use.
    revision: int = 0
    # Of the settings with which it is in use.
    digest: str = ""
    # Where the numbers of its traffic began, and where those of its next use begin at the earliest.
    first: int = 0
    unused: int = 0
    # When it was taken, if another server should have taken it and did not.
    in_place_since: float = 0.0
    # It is being given up to another server.
    is_moving: bool = False
    # Not taken before this time, and nothing is stored before that one.
    not_before: float = 0.0
    put_due: float = 0.0


class Claims:
    """The devices of the server whose lease is that of `membership`."""

    def __init__(self, membership: Membership, directory: Directory, usage: Usage, ttl: float) -> None:
        self._membership = membership
        self._lease = membership.lease
        self._directory = directory
        self._usage = usage
        self._ttl = ttl
        self.plan = Plan()
        # All devices are given up, and none is taken.
        self.is_leaving = False
        self._claims: dict[str, Claim] = {}
        # The devices to look at, in this order.
        self._pending: OrderedDict[str, None] = OrderedDict()
        self._part = 0
        # What was so at the last look: if it is not any more, all devices are looked at.
        self._state: object = None
        self._steps = self._puts = self._moving = 0

    def claim(self, device: str) -> Claim | None:
        """Return what this server does about a device; None if it never did anything. Read it only."""
        return self._claims.get(device)

    def may_write(self, device: str, now: float) -> bool:
        """Whether this server may write to a device now. Any thread may ask."""
        claim = self._claims.get(device)
        # In this order: a lease that ends and begins anew meanwhile has another term.
        return claim is not None and self._lease.is_held(now) and 0 < claim.term == self._lease.term

    @property
    def in_use(self) -> list[str]:
        """The devices in use, or about to be."""
        return [claim.device for claim in self._claims.values() if claim.in_use or claim.is_busy]

    def look(self, now: float, puts: int = MAX_STEPS) -> list[Step]:
        """Return the next steps, for as many devices as are allowed at a time. Call it again when one has ended.

        `puts`: how many of the steps under way may store something.
        """
        held = self._lease.is_held(now)
        profile = self._membership.profile
        if held and self.plan.update(profile, self._directory):
            for device in profile.devices:
                self._claims.setdefault(device, Claim(device))
        state = (held and self._lease.term, self.is_leaving, self.plan.version)
        if state != self._state:
            self._state = state
            self._pending.update(dict.fromkeys(self._claims))
        for device in self._directory.changed():
            if (claim := self._claims.get(device)) is not None:
                claim.put_due = 0.0
                self._pending[device] = None
        steps: list[Step] = []
        # Without a lease nothing is stored, and all devices are given up at the same time.
        while self._pending and (self._steps < MAX_STEPS or not held):
            device, _ = self._pending.popitem(last=False)
            claim = self._claims[device]
            if claim.is_busy or (step := self._next(claim, now, held)) is None:
                continue
            if isinstance(step, Put):
                if self._puts >= puts:
                    self._first(device)
                    break
                self._puts += 1
            claim.is_busy = True
            self._steps += 1
            steps.append(step)
        return steps

    def look_around(self) -> None:
        """Have the next look include another part of all devices: those whose time has come, or that are idle now."""
        devices = list(self._claims)
        parts = max(1, min(PARTS, len(devices) // LEAST_LOOKED_AT))
        self._part = (self._part + 1) % parts
        self._pending.update(dict.fromkeys(devices[self._part :: parts]))

    def put_ended(self, device: str, now: float, *, stored: bool) -> None:
        """A `Put` has ended. What was stored is in the directory already."""
        self._puts -= 1
        claim = self._end_step(device)
        if not stored:
            claim.put_due = now + RETRY_SECONDS

    def begun(self, device: str) -> None:
        """The device is in use."""
        self._end_step(device).in_use = True

    def failed(self, device: str, now: float) -> None:
        """The device cannot be used, and is left to other servers for a while."""
        claim = self._end_step(device)
        claim.term = 0
        claim.not_before = now + REFUSED_SECONDS

    def ended(self, device: str, now: float) -> None:
        """The device is not in use any more: nothing of this server writes to it."""
        claim = self._end_step(device)
        claim.in_use = False
        claim.term = 0
        if claim.is_moving:
            self._moving -= 1
            claim.is_moving = False
            # Not taken back before the others know of it.
            claim.not_before = now + self._ttl / 2

    def _end_step(self, device: str) -> Claim:
        claim = self._claims[device]
        claim.is_busy = False
        self._steps -= 1
        # What has begun with one device is finished before it begins with others.
        self._first(device)
        return claim

    def _first(self, device: str) -> None:
        """Have a device looked at before the others."""
        self._pending[device] = None
        self._pending.move_to_end(device, last=False)

    def _next(self, claim: Claim, now: float, held: bool) -> Step | None:
        """Return the next step for a device; None if there is nothing to do."""
        entry = self._directory.device(claim.device)
        mine = None
        if held and entry is not None and entry.term == self._lease.term:
            mine = entry if entry.server == self._membership.profile.name else None
        if claim.in_use:
            return self._while_used(claim, mine, now, held)
        if mine is None:
            return self._take(claim, now) if held and self._may_take(claim, now) else None
        wanted = not self.is_leaving and now >= claim.not_before and self._is_able(claim.device)
        if not wanted:
            claim.unused = max(claim.unused, mine.first + 1)
            return self._put(claim, replace(mine, server="", term=0), mine.revision, now)
        if mine.first < claim.unused:
            return self._take(claim, now)
        claim.term = self._lease.term
        claim.revision = mine.revision
        claim.first, claim.unused = mine.first, mine.first + 1
        claim.digest = self._membership.profile.devices[claim.device]
        return Begin(claim.device, mine.first)

    def _while_used(self, claim: Claim, mine: DeviceEntry | None, now: float, held: bool) -> Step | None:
        if mine is None or mine.first != claim.first:
            claim.term = 0
            # A board that no other server can reach is still read and recorded. Its guard refuses writes.
            profile = self._membership.profile
            is_kept = claim.device in profile.local and claim.digest == profile.devices.get(claim.device)
            if self.is_leaving or mine is not None or not is_kept:
                return End(claim.device, lost=True)
            return self._take(claim, now) if held and self._may_take(claim, now) else None
        claim.term = self._lease.term
        claim.revision = mine.revision
        if (to := self._leaves_to(claim, now)) is not None:
            if to and not self.is_leaving:
                claim.is_moving = True
                self._moving += 1
            return End(claim.device, to)
        reached = self._usage.next_seq(claim.device)
        if reached + RESERVED_NUMBERS // 2 > mine.limit:
            return self._put(claim, replace(mine, limit=reached + RESERVED_NUMBERS), mine.revision, now)
        return None

    def _leaves_to(self, claim: Claim, now: float) -> str | None:
        """Return the server to which a device in use is given up now, empty if to none. None if it stays."""
        if self.is_leaving:
            return ""
        profile, wanted = self._membership.profile, self.plan.wanted(claim.device)
        if claim.digest != profile.devices.get(claim.device) or not wanted:
            return "" if self._usage.is_idle(claim.device) else None
        if wanted[0] == profile.name or self._moving >= MAX_MOVING:
            return None
        there_since = self.plan.since(wanted[0])
        # Perhaps it cannot use the device.
        if there_since < claim.in_place_since and now - claim.in_place_since < REFUSED_SECONDS:
            return None
        # A newcomer may still be starting.
        if now - there_since < self._ttl / 2 or not self._usage.is_idle(claim.device):
            return None
        return wanted[0]

    def _is_able(self, device: str) -> bool:
        return self._membership.profile.name in self.plan.wanted(device)

    def _may_take(self, claim: Claim, now: float) -> bool:
        """Whether to replace the entry of a device that no server owns."""
        if self.is_leaving or now < claim.not_before or not self._is_able(claim.device):
            return False
        if (since := self._directory.free_since(claim.device, now)) is None:
            return False
        # If a server that should take it does not, the next one does.
        wanted = self.plan.wanted(claim.device)
        before = wanted[: wanted.index(self._membership.profile.name)]
        since = max(since, *map(self.plan.since, before)) if before else since
        return now - since >= self._ttl * len(before)

    def _take(self, claim: Claim, now: float) -> Put | None:
        """Return what makes this server the owner. Numbers continue after those that the last owner had reserved."""
        entry = self._directory.device(claim.device)
        last, limit = (0, 0) if entry is None else (entry.revision, entry.limit)
        if claim.in_use:
            first, reached = claim.first, max(limit, self._usage.next_seq(claim.device))
        else:
            first = reached = max(limit, claim.unused)
        name, term = self._membership.profile.name, self._lease.term
        claim.in_place_since = now if self.plan.wanted(claim.device)[:1] != [name] else 0.0
        return self._put(claim, DeviceEntry(0, 0.0, name, term, first, reached + RESERVED_NUMBERS), last, now)

    def _put(self, claim: Claim, entry: DeviceEntry, last: int, now: float) -> Put | None:
        """Return what replaces the entry of a device, if that is not to wait after an attempt that failed."""
        return entry.put(claim.device, last) if now >= claim.put_due else None


class Pace:
    """How many entries a server may store at the same time, `allowed`, so that its lease is renewed in time.

    The bucket takes one entry after another and writes each to the disk, so what a server sends waits behind what all
    have sent. So each sends more while answers come quickly, and less when they take long, as on a network.
    """

    def __init__(self) -> None:
        self._size = float(FIRST_PUTS)
        self._shrunk_at = float("-inf")

    @property
    def allowed(self) -> int:
        return int(self._size)

    def answered(self, sent: float, now: float) -> None:
        """A request that was sent at the time `sent` has its answer, or has failed."""
        if now - sent <= QUICK_SECONDS:
            self._size = min(float(MAX_PUTS), self._size + GROWTH)
        elif now - sent >= SLOW_SECONDS and sent >= self._shrunk_at:
            self._size = max(1.0, self._size * SHRINKAGE)
            self._shrunk_at = now
