"""Decides which devices this server owns, and takes them over and gives them up.

Each server holds a lease of its own name, and one of each device that it owns (`fastflight.cluster.lease`); all of them
are entries of one bucket, which every server watches (`fastflight.cluster.directory`). A device should be owned by the
server that `placement.ranked` puts first among those that are alive and can reach it. That server creates the lease as
soon as nobody holds it. An owner that is no longer the first gives its devices up one after another, each when nothing
is transferred to or from it.

`run` runs on one event loop. The other methods may be called from any thread. `Devices`, which belongs to the rest of
the server, begins and ends the use of a device. A device that was not ended in time is still not written to: its
`guard` looks at the clock before each write.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import KeyWrongLastSequenceError
from nats.js.kv import KV_DEL, KV_PURGE, KeyValue

from fastflight.cluster.bucket import BUCKET, LEASE_ANSWER_SECONDS, LISTS_BUCKET, open_bucket
from fastflight.cluster.connection import ClusterConnection, understood
from fastflight.cluster.directory import DEVICE, SERVER, Directory, Entry, Profile, differences, key_of
from fastflight.cluster.lease import TTL_SECONDS, Create, Lease
from fastflight.cluster.placement import rankings
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError, TransportClosed

log = structlog.get_logger(__name__)

# Between two looks at the leases. A lease is renewed every second, and ends half a second before its entry.
TICK_SECONDS = 0.1
# A device that another server should own is looked at once in so many ticks: most devices are of that kind.
BACKUP_TICKS = 10
# Before the bucket is opened again after an error.
RETRY_SECONDS = 1.0
# A device that cannot be taken over is left to other servers for this long.
REFUSED_SECONDS = 30.0
# Traffic of a new owner is numbered after that of the last one, which used fewer numbers than this in a second.
NUMBERS_PER_SECOND = 1_000_000


class Devices(Protocol):
    """The devices of this server. The methods are called in threads, and may take a few seconds."""

    def take(self, device: str, first_seq: int, guard: Callable[[], None]) -> None:
        """Begin to use a device: its traffic has numbers from `first_seq` on, and `guard` goes before each write."""

    def give(self, device: str) -> None:
        """End the use of a device, and return when its line is closed. Does nothing if it is not in use."""

    def is_idle(self, device: str) -> bool:
        """Whether the device can be given up now without breaking off a transfer. Returns at once."""

    def next_seq(self, device: str) -> int:
        """The number of the device's next chunk of traffic. Returns at once."""


class _Claim:
    """What this server does about one device."""

    def __init__(self, key: str, lease: Lease) -> None:
        self.key = key
        self.lease = lease
        # `Devices.take` has returned, and `give` was not called yet.
        self.in_use = False
        # `take` or `give` runs.
        self.busy: asyncio.Task[None] | None = None
        # The lease is given up when `give` has returned.
        self.leaving = False
        # Of the settings with which the device is in use.
        self.digest = ""
        self.first_seq = 0
        # Not claimed before this time, because `take` failed.
        self.not_before = 0.0


class Ownership:
    """The leases of one server. `fleet` names the bucket's owner; `servers` is the number of NATS servers."""

    def __init__(
        self,
        connection: ClusterConnection,
        profile: Profile,
        devices: Devices,
        fleet: str = "fleet",
        *,
        servers: int = 1,
        ttl: float = TTL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._profile = profile
        self._devices = devices
        self._fleet = fleet
        self._servers = servers
        self._ttl = ttl
        self._clock = clock
        self.directory = Directory(ttl)
        self._own = self._new_lease()
        self._joined_at = 0.0
        self._claims: dict[str, _Claim] = {}
        self._leases: dict[str, Lease] = {}
        self._bucket: KeyValue | None = None
        self._lists: KeyValue | None = None
        self._lists_due = 0.0
        self._leaving = False
        self._tasks: set[asyncio.Task[None]] = set()
        # The request of each lease that is under way.
        self._sending: dict[Lease, asyncio.Task[None]] = {}
        # The owners that the servers should have: computed again when they change.
        self._placed: tuple[object, dict[str, list[str]]] = (None, {})
        # Counts ticks, up to `BACKUP_TICKS`.
        self._turn = 0
        # Why this server is not a member of the cluster; empty while it is.
        self.trouble = "not connected to NATS yet"
        # The other servers whose fleet files differ from this one's, each with what differs.
        self.differing: dict[str, list[str]] = {}

    @property
    def profile(self) -> Profile:
        """What this server says of itself."""
        return self._profile

    def describe(self, profile: Profile) -> None:
        """Change what this server says of itself: its devices. Devices that it no longer has are given up."""
        self._profile = replace(profile, boot=self._profile.boot)
        self._placed = (None, {})

    def owns(self, device: str) -> bool:
        """Whether this server uses the device."""
        claim = self._claims.get(device)
        return claim is not None and claim.in_use and claim.lease.is_held(self._clock())

    def token(self, device: str) -> int:
        """Return the fencing token of the lease of a device; 0 if this server does not use it."""
        claim = self._claims.get(device)
        return claim.lease.revision if claim is not None and claim.in_use else 0

    def owner(self, device: str) -> Profile | None:
        """Return the server that owns the device as far as this server knows; None if there is none."""
        return self.directory.owner(device, self._clock())

    def first_seq(self, device: str) -> int:
        """Return the number with which the traffic of the present owner began."""
        entry = self.directory.entry(key_of(DEVICE, device))
        return 0 if entry is None else _number(entry.value.get("first"))

    def members(self) -> dict[str, Profile]:
        """Return the servers that are alive, by name."""
        return {name: profile for name, (profile, _) in self.directory.members(self._clock()).items()}

    def names(self) -> list[str]:
        """Return the devices of all servers that are alive, with this server's own first."""
        names = dict.fromkeys(self._profile.devices)
        for profile in self.members().values():
            names.update(dict.fromkeys(profile.devices))
        return list(names)

    async def run(self) -> None:
        """Take over and give up devices until cancelled. Call `leave` first."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            while True:
                if watching.done():
                    watching.result()
                self._look()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def leave(self) -> None:
        """Give up all devices, and the name. Other servers take over at once."""
        self._leaving = True
        if self._tasks:  # requests under way, which may still create a lease
            await asyncio.wait(self._tasks, timeout=LEASE_ANSWER_SECONDS)
        while any(claim.in_use or claim.busy for claim in self._claims.values()):
            for device, claim in self._claims.items():
                claim.leaving = True
                if claim.in_use and claim.busy is None:
                    self._begin(claim, self._give(device, claim))
            await asyncio.wait([claim.busy for claim in self._claims.values() if claim.busy])
        for claim in self._claims.values():
            await self._delete(claim.key, claim.lease)
        await self._delete(key_of(SERVER, self._profile.name), self._own)
        for task in [*self._tasks]:
            task.cancel()

    async def _watch(self) -> None:
        """Keep the directory up to date, over all connections."""
        while True:
            client = await self._connection.connected()
            try:
                bucket = await open_bucket(client, BUCKET, self._fleet, self._ttl, self._servers)
                self._lists = await open_bucket(client, LISTS_BUCKET, self._fleet, None, self._servers)
                with understood("the bucket of owners"):
                    lists, leases = await self._lists.watchall(), await bucket.watchall()
                    self.directory.begin(self._clock())
                    self._bucket = bucket
                    waiting = [
                        asyncio.ensure_future(each)
                        for each in (self._connection.lost(client), self._read(leases), self._read_lists(lists))
                    ]
                    try:
                        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        self._bucket = None
                        for each in waiting:
                            each.cancel()
                        await asyncio.wait(waiting)
            except FastFlightError as error:
                self._note_trouble(str(error))
            await asyncio.sleep(RETRY_SECONDS if self._connection.is_connected else 0)

    async def _read(self, watcher: KeyValue.KeyWatcher) -> None:
        async for update in watcher:
            if update is None:  # the entries that there were have been read
                continue
            if update.operation == KV_PURGE:  # by the clock of NATS, which decides nothing here
                continue
            value = None if update.operation == KV_DEL else _content(update.value)
            self.directory.saw(update.key, update.revision or 0, value, self._clock())
            if value is not None and value.get("boot") == self._profile.boot:
                self._stored(update.key, _number(value.get("n")), update.revision or 0)

    async def _read_lists(self, watcher: KeyValue.KeyWatcher) -> None:
        async for update in watcher:
            if update is not None:
                self.directory.saw_list(_content(update.value))

    def _stored(self, key: str, number: int, revision: int) -> None:
        """An own request was seen in the bucket: its acknowledgement may have been lost."""
        lease = self._own if key == key_of(SERVER, self._profile.name) else self._leases.get(key)
        if lease is not None:
            lease.stored(number, revision)

    def _look(self) -> None:
        now = self._clock()
        members = self.directory.members(now)
        for device, claim in self._claims.items():
            # A board that no other server can reach is still read and recorded. Its guard refuses writes.
            kept = device in self._profile.local
            if claim.in_use and claim.busy is None and not claim.lease.is_held(now) and not kept:
                log.warning("the lease of a device has ended", device=device)
                self._begin(claim, self._give(device, claim))
        bucket = self._bucket
        if bucket is None or self._leaving:
            if bucket is None:
                self._note_trouble(self._connection.trouble or self.trouble or "the bucket cannot be used")
            return
        self._join(bucket, now)
        if not self._own.is_held(now):
            return
        placed = self._place(members)
        moving = any(each.leaving for each in self._claims.values())
        for device in self._profile.devices.keys() - self._claims.keys():
            claim = self._claims[device] = _Claim(key_of(DEVICE, device), self._new_lease())
            self._leases[claim.key] = claim.lease
        self._turn = (self._turn + 1) % BACKUP_TICKS
        for number, (device, claim) in enumerate(self._claims.items()):
            wanted = placed.get(device, [])
            if claim.lease.is_held(now):
                self._request(bucket, claim.key, claim.lease, partial(self._content_of, device, claim), now)
                moving = self._keep(device, claim, wanted, members, now, moving) or moving
            elif wanted[:1] != [self._profile.name] and number % BACKUP_TICKS != self._turn:
                continue
            elif self._may_take(device, claim, wanted, now):
                self._request(bucket, claim.key, claim.lease, partial(self._content_of, device, claim), now)

    def _join(self, bucket: KeyValue, now: float) -> None:
        """Hold the lease of this server's name."""
        key = key_of(SERVER, self._profile.name)
        held = self.directory.holder(key, now)
        if self._own.is_held(now):
            self._note_trouble("")
            self._has_listed(now)
            seen_at = self._joined_at if held is None else held.at
            if now - max(seen_at, self._joined_at) > self._ttl:
                # Renewals are acknowledged, and not seen: the watcher has fallen silent.
                self._joined_at = now
                log.warning("the bucket of owners is silent; connecting again")
                self._spawn(self._connection.drop())
        elif held is not None and held.value.get("boot") != self._profile.boot:
            if held.at - held.since > 0:  # it was renewed meanwhile, so it is no remainder of this server's last run
                other = held.value.get("location")
                self._note_trouble(
                    f"another server, at {other}, has the name {self._profile.name!r}. Give this one another name with "
                    "--cluster-name"
                )
            return
        elif self.directory.vacancy(key, now) is None:
            return
        elif not self._has_listed(now):
            return
        else:
            self._joined_at = now
        digest = self.directory.listed(self._profile.name)
        self._request(bucket, key, self._own, partial(self._profile.as_json, digest), now)

    def _has_listed(self, now: float) -> bool:
        """Whether this server's devices were seen in the bucket of lists. Stores them if not."""
        if self.directory.listed(self._profile.name) == self._profile.digest:
            return True
        if now >= self._lists_due:
            self._lists_due = now + RETRY_SECONDS
            self._spawn(self._list(self._profile))
        return False

    async def _list(self, profile: Profile) -> None:
        """Store this server's devices."""
        try:
            for key, content in profile.lists().items():
                if self._lists is not None:
                    await self._lists.put(key, json.dumps(content).encode())
        except (NatsError, TimeoutError, OSError) as error:
            log.info("the devices of this server were not stored; trying again", error=type(error).__name__)

    def _keep(
        self,
        device: str,
        claim: _Claim,
        wanted: list[str],
        members: Mapping[str, tuple[Profile, float]],
        now: float,
        moving: bool,
    ) -> bool:
        """Begin to use a device, or to give it up. Return whether it is given up."""
        if claim.busy is not None or claim.leaving:
            return False
        if not claim.in_use:
            self._begin(claim, self._take(device, claim))
            return False
        if claim.digest == self._profile.devices.get(device):
            # A newcomer may still be starting.
            if wanted[:1] == [self._profile.name] or now - members[wanted[0]][1] < self._ttl / 2:
                return False
        if moving or not self._devices.is_idle(device):
            return False
        log.info("a device moves to another server", device=device, to=wanted[0] if wanted else None)
        claim.leaving = True
        self._begin(claim, self._give(device, claim))
        return True

    def _may_take(self, device: str, claim: _Claim, wanted: list[str], now: float) -> bool:
        """Whether to create the lease of a device now."""
        if claim.busy is not None or now < claim.not_before or self._profile.name not in wanted:
            return False
        if claim.in_use and device not in self._profile.local:
            return False
        if self.directory.vacancy(claim.key, now) is None:
            return False
        # If a server that should take it does not, the next one does.
        patience = self._ttl * wanted.index(self._profile.name)
        return now - self.directory.vacant_since(claim.key) >= patience

    def _place(self, members: Mapping[str, tuple[Profile, float]]) -> dict[str, list[str]]:
        """Return the servers that can own each device, the one that should be its owner first."""
        profiles = {name: profile for name, (profile, _) in members.items()}
        profiles[self._profile.name] = self._profile
        if self._placed[0] != profiles:
            self._compare(profiles)
            devices = self._profile.devices
            placed = {
                device: [name for name in order if profiles[name].reaches(device, devices[device])]
                for device, order in rankings([*devices], profiles).items()
            }
            self._placed = profiles, placed
        return self._placed[1]

    def _compare(self, profiles: Mapping[str, Profile]) -> None:
        """Report servers whose fleet files differ from this one's."""
        found = {
            name: differing
            for name, profile in profiles.items()
            if name != self._profile.name and (differing := differences(self._profile, profile))
        }
        for name, differing in found.items():
            if self.differing.get(name) != differing:
                log.error(
                    "the fleet files of two servers differ",
                    server=name,
                    devices=differing[:10],
                    hint="Give all servers the same fleet file, and send them SIGHUP",
                )
        self.differing = found

    def _request(
        self, bucket: KeyValue, key: str, lease: Lease, content: Callable[[], Mapping[str, Any]], now: float
    ) -> None:
        """Send the next request for a lease, if one is due."""
        request = lease.next(now)
        if request is None:
            return
        last = (self.directory.vacancy(key, now) or 0) if isinstance(request, Create) else request.revision
        value = json.dumps({**content(), "n": request.number}).encode()
        sent = self._spawn(self._send(bucket, key, lease, request.number, value, last, isinstance(request, Create)))
        self._sending[lease] = sent
        sent.add_done_callback(lambda _: self._sending.pop(lease, None))

    async def _send(
        self, bucket: KeyValue, key: str, lease: Lease, number: int, value: bytes, last: int, create: bool
    ) -> None:
        try:
            try:
                revision = await bucket.update(key, value, last=last)
            except KeyWrongLastSequenceError:
                if not (create and last):
                    raise
                # The bucket itself has dropped the entry that is to be replaced.
                revision = await bucket.update(key, value, last=0)
        except KeyWrongLastSequenceError:
            lease.refused(number)
        except (NatsError, TimeoutError, OSError):
            lease.unanswered(number)
        else:
            lease.stored(number, revision)
        finally:
            lease.unanswered(number)  # also if this task is cancelled; without effect after an answer

    async def _take(self, device: str, claim: _Claim) -> None:
        lease = claim.lease
        claim.digest = self._profile.devices[device]
        try:
            await off_loop(self._devices.take, device, claim.first_seq, self._guard(device, lease))
        except FastFlightError as error:
            log.error("a device could not be taken over", device=device, error=str(error))
            claim.not_before = self._clock() + REFUSED_SECONDS
            claim.leaving = True
            await self._delete(key_of(DEVICE, device), lease)
            claim.leaving = False
            return
        claim.in_use = True
        log.info("this server owns a device", device=device, revision=lease.revision)

    async def _give(self, device: str, claim: _Claim) -> None:
        try:
            await off_loop(self._devices.give, device)
        except FastFlightError as error:
            log.error("the use of a device did not end as it should", device=device, error=str(error))
        claim.in_use = False
        if claim.leaving:
            await self._delete(claim.key, claim.lease)
            # Not taken back before the others know of it.
            claim.not_before = self._clock() + self._ttl / 2
            claim.leaving = self._leaving

    async def _delete(self, key: str, lease: Lease) -> None:
        """Let others have the lease at once. If that fails, they wait until it ends by itself."""
        # A renewal under way would change the revision.
        while (sending := self._sending.get(lease)) is not None:
            await asyncio.wait([sending])
        request, bucket = lease.release(), self._bucket
        if request is None or bucket is None:
            return
        try:
            await bucket.delete(key, last=request.revision)
        except (NatsError, TimeoutError, OSError) as error:
            log.info("a lease was not released", key=key, error=type(error).__name__)

    def _content_of(self, device: str, claim: _Claim) -> dict[str, Any]:
        """Return the content of a device's entry. The numbers continue after those of the last owner."""
        if claim.in_use:
            following = self._devices.next_seq(device)
        elif claim.lease.revision == 0:
            known = self.directory.entry(claim.key)
            claim.first_seq = following = 0 if known is None else self._following(known)
        else:
            following = claim.first_seq
        return {
            "server": self._profile.name,
            "boot": self._profile.boot,
            "device": device,
            "first": claim.first_seq,
            "next": following,
        }

    def _following(self, known: Entry) -> int:
        """Return a number after all that the last owner can have used."""
        used = _number(known.value.get("next")) + int((self._clock() - known.at + 1) * NUMBERS_PER_SECOND)
        return -(-used // NUMBERS_PER_SECOND) * NUMBERS_PER_SECOND

    def _guard(self, device: str, lease: Lease) -> Callable[[], None]:
        def check() -> None:
            if not lease.is_held(self._clock()):
                raise TransportClosed(
                    "this server does not own the device any more",
                    where=device,
                    hint="Another server takes it over: ask again in a few seconds",
                )

        return check

    def _new_lease(self) -> Lease:
        return Lease(self._ttl, self._ttl / 8, self._ttl / 4)

    def _begin(self, claim: _Claim, work: Any) -> None:
        task = claim.busy = self._spawn(work)

        def end(_: object) -> None:
            claim.busy = None

        task.add_done_callback(end)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            if trouble:
                log.error("this server is not a member of its cluster", reason=trouble)
            else:
                log.info("this server is a member of its cluster", server=self._profile.name)
        self.trouble = trouble


def _content(value: bytes | None) -> Mapping[str, Any]:
    """Return the content of an entry; empty if it was not written by fastflight."""
    try:
        content = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
