"""Decides which devices this server owns, and takes them over and gives them up.

`cluster.membership` decides for the lease of this server, and `cluster.claims` for its devices. Here is what they need:
the bucket, which every server watches, threads for the use of devices, and the clock.

`run` runs on one event loop. The other methods may be called from any thread. `Devices`, which belongs to the rest of
the server, begins and ends the use of a device. A device that was not ended in time is still not written to: its
`guard` looks at the clock before each write.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from fastflight.cluster.bucket import ANSWER_SECONDS, Bucket, open_bucket
from fastflight.cluster.claims import Begin, Claims, End, Pace, Step, Usage
from fastflight.cluster.connection import ClusterConnection, typed_errors
from fastflight.cluster.directory import Directory
from fastflight.cluster.entries import Put
from fastflight.cluster.lease import TTL_SECONDS
from fastflight.cluster.membership import Membership
from fastflight.cluster.profile import Profile
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError, TransportClosed

log = structlog.get_logger(__name__)

# Between two looks without a reason. A lease is renewed every second, and ends half a second before others end it.
TICK_SECONDS = 0.2
# Changes within this time are looked at together.
GATHER_SECONDS = 0.01
# Before the bucket is opened again after an error.
RETRY_SECONDS = 1.0
# A process that has not looked for so long was stopped itself.
STOPPED_SECONDS = 1.0
# Devices whose use begins or ends at the same time, each in a thread.
MAX_CALLS = 32

# A clock that goes on while the computer sleeps, as the clocks of the other servers do: a lease ends meanwhile.
# `time.monotonic` stands still in the sleep of Linux and macOS, though not of Windows, which has no `clock_gettime`.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed() -> float:
    """Return the time of this computer since some moment in the past, in seconds. It includes sleep."""
    return time.monotonic() if _SLEEPLESS is None else time.clock_gettime(_SLEEPLESS)


class Devices(Usage, Protocol):
    """The devices of this server. `take` and `give` are called in threads, and may take a few seconds."""

    def disconnect(self, device: str) -> None:
        """Begin to close the line of a device that another server may use now, and return at once."""

    def take(self, device: str, first_seq: int, guard: Callable[[], None]) -> None:
        """Begin to use a device: its traffic has numbers from `first_seq` on, and `guard` goes before each write."""

    def give(self, device: str, lost: bool) -> None:
        """End the use of a device, and return when its line is closed. Does nothing if it is not in use.

        `lost`: `disconnect` was called, and this waits for nothing else that other servers do.
        """


class Ownership:
    """The lease of one server, and its devices. `fleet` names the bucket's owner; `servers` counts the NATS servers."""

    def __init__(
        self,
        connection: ClusterConnection,
        profile: Profile,
        devices: Devices,
        fleet: str = "fleet",
        *,
        servers: int = 1,
        ttl: float = TTL_SECONDS,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._connection = connection
        self._devices = devices
        self._fleet = fleet
        self._servers = servers
        self._ttl = ttl
        self._clock = clock
        self.directory = Directory(ttl)
        self._membership = Membership(profile, self.directory, ttl)
        self._claims = Claims(self._membership, self.directory, devices, ttl)
        self._bucket: Bucket | None = None
        # When something was last seen in the bucket, and when `_look` was called last.
        self._seen_at = self._looked_at = clock()
        self._was_held = self._has_left = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._pace = Pace()
        self._calling = asyncio.Semaphore(MAX_CALLS)
        # Why this server is not a member of the cluster; empty while it is.
        self.trouble = "not connected to NATS yet"
        self._trouble_since = clock()
        self._complained = ""
        self._differing: dict[str, list[str]] = {}

    @property
    def profile(self) -> Profile:
        """What this server says of itself."""
        return self._membership.profile

    @property
    def differing(self) -> dict[str, list[str]]:
        """The other servers whose fleet files differ from this one's, each with what differs."""
        return self._claims.plan.differing

    def describe(self, profile: Profile) -> None:
        """Change what this server says of itself: its devices. Devices that it no longer has are given up."""
        self._membership.describe(profile)

    def owns(self, device: str) -> bool:
        """Whether this server uses the device."""
        claim = self._claims.claim(device)
        return claim is not None and claim.in_use and self._claims.may_write(device, self._clock())

    def token(self, device: str) -> int:
        """Return the fencing token of a device, which grows with each owner; 0 if this server does not use it."""
        claim = self._claims.claim(device)
        return self.directory.epoch + claim.revision if claim is not None and (claim.in_use or claim.term) else 0

    def owner(self, device: str) -> Profile | None:
        """Return the server that owns the device as far as this server knows; None if there is none."""
        return self.directory.owner(device, self._clock())

    @property
    def settled_seconds(self) -> float:
        """For how long the owner of no device has changed, as far as this server knows."""
        return self._clock() - self.directory.owners_changed_at

    def first_seq(self, device: str) -> int:
        """Return the number with which the traffic of the present owner began."""
        entry = self.directory.device(device)
        return 0 if entry is None else entry.first

    def members(self) -> dict[str, Profile]:
        """Return the servers that are alive, by name."""
        return {name: profile for name, (profile, _) in self.directory.members(self._clock()).items()}

    async def run(self) -> None:
        """Take over and give up devices until cancelled. Call `leave` first."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        tick_at = 0.0
        try:
            while True:
                if self._clock() >= tick_at:
                    tick_at = self._clock() + TICK_SECONDS
                    self._claims.look_around()
                self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._changed.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._changed.clear()
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def leave(self) -> None:
        """Give up all devices, and the name. Other servers take over at once."""
        self._claims.is_leaving = True
        self._look()
        while self._claims.in_use:
            await asyncio.sleep(GATHER_SECONDS)
            self._look()
        self._has_left = True
        if self._tasks:  # a renewal under way would change the revision
            await asyncio.wait(self._tasks, timeout=ANSWER_SECONDS)
        if (put := self._membership.release()) is not None:
            await self._store(put)
        for task in [*self._tasks]:
            task.cancel()

    async def _watch(self) -> None:
        """Keep the directory up to date, over all connections."""
        while True:
            client = await self._connection.connected()
            try:
                with typed_errors("the bucket of owners"):
                    bucket = await open_bucket(client, self._fleet, self._servers)
                    await self._follow(client, bucket)
            except FastFlightError as error:
                self._note_trouble(str(error), is_sure=True)
            except Exception as error:  # the edge of nats-py: what fails now may work in a second
                log.error("the bucket of owners cannot be watched; trying again", error=repr(error))
            await asyncio.sleep(RETRY_SECONDS if self._connection.is_connected else 0)

    async def _follow(self, client: Client, bucket: Bucket) -> None:
        """Use the bucket until the connection is lost."""
        self.directory.begin(bucket.created)
        self._seen_at = self._clock()
        self._bucket = bucket
        waiting = [asyncio.ensure_future(self._connection.lost(client)), asyncio.ensure_future(self._read(bucket))]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            self._bucket = None
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)

    async def _read(self, bucket: Bucket) -> None:
        async for seen in bucket.watch():
            now = self._seen_at = self._clock()
            if seen is None:
                self.directory.loaded(now)
            else:
                self._membership.saw(*seen, now)
            self._changed.set()

    def _look(self) -> None:
        """Do what is to be done now."""
        now = self._clock()
        if self._has_left:
            return
        if self._bucket is not None:
            for put in self._membership.look(now):
                self._spawn(self._store(put))
        try:
            steps = self._claims.look(now, self._pace.allowed)
        except Exception as error:  # an edge of the other devices: one may not end the ownership of all
            log.error("the devices of this server were not looked at", error=repr(error))
            return
        for step in steps:
            self._spawn(self._carry_out(step))
        self._note_state(now)
        self._looked_at = now

    async def _store(self, put: Put) -> bool:
        """Store an entry. Return whether it is stored for certain."""
        membership, is_answered = self._membership, False
        try:
            if (bucket := self._bucket) is None:
                return False
            revision = await bucket.put(put)
            is_answered = True
            if revision is None:
                membership.refused(put)
            else:
                membership.stored(put, revision, self._clock())
                if put.content.get("ended"):
                    log.info("the lease of a server has ended", server=put.content["server"])
            return revision is not None
        except (NatsError, TimeoutError, OSError):
            return False
        finally:
            if not is_answered:
                membership.unanswered(put)

    async def _carry_out(self, step: Step) -> None:
        """Do one step for a device, and report its result."""
        if isinstance(step, Put):
            stored = False
            sent = self._clock()
            try:
                stored = await self._store(step)
            finally:
                self._pace.answered(sent, self._clock())
                self._claims.put_ended(str(step.content["device"]), self._clock(), stored=stored)
            return
        if isinstance(step, End) and step.lost:
            # All lines at once: there are fewer threads than devices.
            self._devices.disconnect(step.device)
        async with self._calling:
            if isinstance(step, Begin):
                await self._take(step)
            else:
                await self._give(step)

    async def _take(self, step: Begin) -> None:
        try:
            await off_loop(self._devices.take, step.device, step.first_seq, self._guard(step.device))
        except Exception as error:  # of whatever kind: it is one device of many
            log.error("a device could not be taken over", device=step.device, error=_text(error))
            self._claims.failed(step.device, self._clock())
            return
        self._claims.begun(step.device)
        log.info("this server owns a device", device=step.device, token=self.token(step.device))

    async def _give(self, step: End) -> None:
        log.info("the use of a device ends", device=step.device, to=step.to or None)
        try:
            await off_loop(self._devices.give, step.device, step.lost)
        except Exception as error:  # of whatever kind: it is one device of many, and its guard refuses writes
            log.error("the use of a device did not end as it should", device=step.device, error=_text(error))
        self._claims.ended(step.device, self._clock())

    def _guard(self, device: str) -> Callable[[], None]:
        def check() -> None:
            if not self._claims.may_write(device, self._clock()):
                raise TransportClosed(
                    "this server does not own the device any more",
                    where=device,
                    hint="Another server takes it over: ask again in a few seconds",
                )

        return check

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step of the ownership failed", error=repr(error))

    def _note_state(self, now: float) -> None:
        """Find out why this server is not a member, and whether the fleet files of the others differ."""
        held = self._membership.lease.is_held(now)
        if self._was_held and not held:
            log.warning("the lease of this server has ended: it does not write to boards until it has a new one")
        self._was_held = held
        if self._bucket is None:
            self._note_trouble(self._connection.trouble or self.trouble or "the bucket of owners cannot be used")
        elif held:
            self._note_trouble("")
        elif (other := self._membership.twin(now)) is not None:
            self._note_trouble(
                f"another server, at {other}, has the name {self.profile.name!r}. Give this one another name with "
                "--cluster-name",
                is_sure=True,
            )
        else:
            self._note_trouble("it has connected to NATS, and waits for its lease: a few seconds after a start")
        if self.differing != self._differing:
            for name, found in self.differing.items():
                if self._differing.get(name) != found:
                    log.error(
                        "the fleet files of two servers differ",
                        server=name,
                        devices=found[:10],
                        hint="Give all servers the same fleet file, and send them SIGHUP",
                    )
            self._differing = self.differing
        if now - self._looked_at > STOPPED_SECONDS:
            self._seen_at = now
        # Renewals are seen if they are stored. Without a lease, those of others or the attempts to get one.
        if self._bucket is not None and now - self._seen_at > (self._ttl if held else 2 * self._ttl):
            self._seen_at = now
            log.warning("the bucket of owners is silent; connecting again")
            self._spawn(self._connection.drop())

    def _note_trouble(self, trouble: str, *, is_sure: bool = False) -> None:
        """Log why this server is not a member. What may pass by itself is an error only if it lasts."""
        now = self._clock()
        if bool(trouble) != bool(self.trouble):
            self._trouble_since = now
        if not trouble:
            if self.trouble:
                log.info("this server is a member of its cluster", server=self.profile.name)
            self._complained = ""
        elif (is_sure or now - self._trouble_since > 2 * self._ttl) and trouble != self._complained:
            log.error(
                "this server is not a member of its cluster",
                reason=trouble,
                hint="It goes on trying. Until then it owns no devices, and serves what needs none",
            )
            self._complained = trouble
        elif trouble != self.trouble:
            log.info("this server is not a member of its cluster yet", reason=trouble)
        self.trouble = trouble


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, FastFlightError) else repr(error)
