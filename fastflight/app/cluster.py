"""A server's membership of a cluster: connects to NATS, and takes and gives devices as `cluster.ownership` decides.

Importing this module loads nats-py, which only `serve --cluster` needs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import secrets
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastflight.access.action import Action, Body, EmptyBody, Result
from fastflight.app.cluster_settings import ClusterSettings
from fastflight.app.forwarding import Forwarding, Unanswered
from fastflight.app.routes import UNOWNED
from fastflight.app.served_devices import ServedDevices
from fastflight.app.settings import ServeSettings
from fastflight.client.credentials import Credentials
from fastflight.cluster.connection import ClusterConnection, NatsAddress
from fastflight.cluster.ownership import Ownership
from fastflight.cluster.profile import Profile, digest_of
from fastflight.cluster.replication import replication
from fastflight.concurrency import Shard
from fastflight.device import Inventory
from fastflight.errors import FastFlightError, RequestError, TransportError
from fastflight.log import Extent
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.sources import DefaultRecordings, Recordings
from fastflight.sources.recordings import KEPT, UNKNOWN, rows_of
from fastflight.transport.url import public_url

# How long giving up all devices may take at shutdown. Leases that are still there then end by themselves.
LEAVE_SECONDS = 10.0
# How often streams from servers that have gone are looked for.
CHECK_SECONDS = 1.0
# Where files of NATS have the seed of a key, and how they are named.
SEED = re.compile(r"\A\s*S[A-Z2-7]{57}\s*\Z")
SEED_IN_CREDENTIALS = re.compile(r"BEGIN NATS USER JWT-+\s+\S+\s.*BEGIN USER NKEY SEED-+\s+S[A-Z2-7]{57}\s", re.DOTALL)
EXAMPLES = {"credentials": "server.creds", "nkey": "server.nk"}
# How long NATS may take to say what it has.
REPLICAS_SECONDS = 3.0
# The actions by which servers ask each other for their own devices, recordings, and rows that wait for NATS.
OWN_DEVICES = "cluster.devices"
OWN_RECORDINGS = "cluster.recordings"
OWN_WAITING = "cluster.waiting"
# The action by which servers cancel each other's streams.
OWN_STREAMS = "cluster.cancel"


class CancelBody(Body):
    """The ticket of the streams to cancel, and whose they must be: None for all."""

    ticket: str
    identity: str | None = None


class DeviceNames:
    """The names of several servers' devices. Each request asks for them, so they are joined only when they change."""

    def __init__(self) -> None:
        self._joined: tuple[Sequence[Mapping[str, str]], dict[str, None]] = ((), {})

    def of(self, fleets: Sequence[Mapping[str, str]]) -> Collection[str]:
        """Return the names in all `fleets`, each once. A fleet that has changed must be another object."""
        known, names = self._joined
        if len(known) != len(fleets) or any(one is not other for one, other in zip(known, fleets, strict=True)):
            names = dict.fromkeys(name for devices in fleets for name in devices)
            self._joined = fleets, names
        return names.keys()


class ClusterMember:
    """This server in its cluster. `open` begins to take devices; `close` gives them all up.

    It is the `Owners` of `forwarding`, which the sources and actions of the server use.
    """

    def __init__(
        self,
        settings: ServeSettings,
        served: ServedDevices,
        inventory: Inventory,
        catalog: Catalog,
    ) -> None:
        assert settings.cluster is not None
        self._settings = settings.cluster
        self._urls = settings.devices
        self._names = DeviceNames()
        address = nats_address(self._settings)
        self._shard = Shard("cluster").start()
        try:
            profile = profile_of(settings, secrets.token_hex(8))
            self._connection, self._ownership = self._shard.submit(
                _opened(self._settings, address, profile, served)
            ).result()
            encrypted = settings.location.startswith("grpc+tls:")
            ca = self._settings.server_ca if encrypted else None
            self.forwarding = Forwarding(inventory, self, catalog, Credentials(self._settings.token, ca=ca))
        except BaseException:
            self._shard.close()
            raise
        self._running: list[concurrent.futures.Future[None]] = []

    def open(self, location: str, http: str | None) -> None:
        """Begin to take devices. `location` and `http` are the addresses at which this server listens."""
        mine = self._ownership.profile
        self._ownership.describe(replace(mine, location=self._settings.location or location, http=http or ""))
        self._running = [self._shard.submit(self._ownership.run()), self._shard.submit(self._check())]

    def apply(self, settings: ServeSettings) -> None:
        """Use the devices of a fleet file that was read again. Those that have changed are taken anew."""
        self._urls = settings.devices
        before = self._ownership.profile
        after = profile_of(settings, before.boot)
        self._ownership.describe(replace(after, name=before.name, location=before.location, http=before.http))

    def leave(self) -> None:
        """Give up all devices, so that other servers take them at once."""
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError, FastFlightError):
            self._shard.submit(self._ownership.leave()).result(LEAVE_SECONDS)

    def close(self) -> None:
        """Close the connections, to NATS and to other servers."""
        for running in self._running:
            running.cancel()
        self.forwarding.routes.close()
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError, FastFlightError):
            self._shard.submit(self._connection.aclose()).result(LEAVE_SECONDS)
        self._shard.close()

    def names(self) -> Collection[str]:
        """The devices of all servers that are alive, with this server's own first."""
        servers = [self._ownership.profile, *self._ownership.members().values()]
        return self._names.of([profile.devices for profile in servers])

    def location(self, device: str) -> str | None:
        """The address of the other server that owns the device; None if no other server does at the moment."""
        owner = self._ownership.owner(device)
        if owner is None or owner.boot == self._ownership.profile.boot or self._has_my_address(owner):
            return None
        return owner.location

    def locations(self, device: str) -> list[str]:
        """The addresses of all servers, the owner's first."""
        owner = self._ownership.owner(device)
        others = [profile.location for profile in self._ownership.members().values()]
        return list(dict.fromkeys([*([owner.location] if owner else []), *others]))

    def first_seq(self, device: str) -> int:
        """The number with which the traffic of the present owner began."""
        return self._ownership.first_seq(device)

    def token(self, device: str) -> int:
        """The fencing token of the lease of a device; 0 if this server does not use it."""
        return self._ownership.token(device)

    def others(self) -> dict[str, str]:
        """The addresses of the other servers, by name."""
        mine = self._ownership.profile.boot
        return {name: each.location for name, each in self._ownership.members().items() if each.boot != mine}

    def why_gone(self, device: str) -> str:
        """Why no server can own the device; empty if one will soon."""
        return self._why_gone(device, [*self._ownership.members().values()])

    def _has_my_address(self, server: Profile) -> bool:
        """Whether another server gives this one's address as its own, as two that listen on loopback may do.

        A request that is passed on there would come back here, again and again.
        """
        mine = self._ownership.profile
        return server.boot != mine.boot and server.location == mine.location

    def _why_gone(self, device: str, members: Sequence[Profile]) -> str:
        mine = self._ownership.profile
        owner = self._ownership.owner(device)
        if owner is not None and self._has_my_address(owner):
            return (
                f"its server, {owner.name}, gives {owner.location} as its address, which is that of this server. "
                "Start each with an address that the others reach: --cluster-location"
            )
        able = [each for each in (mine, *members) if device in each.devices and device not in each.unreachable]
        if not able:
            return "the server with this board is not there"
        if self._ownership.trouble and all(each.boot == mine.boot for each in able):
            return f"this server cannot take it over: {self._ownership.trouble}"
        return ""

    def actions(
        self, local: Action, recordings: Recordings | DefaultRecordings | None, registry: StreamRegistry
    ) -> list[Action]:
        """Return the actions about the cluster. `local` is the action `devices`; its result has all devices instead.

        `recordings` and `registry` are the recordings and the streams of this server.
        """
        forwarding = self.forwarding

        def own(_: EmptyBody) -> Iterable[Result]:
            return [{**each, "server": self._settings.name} for each in local.run(EmptyBody())]

        def everywhere(_: EmptyBody) -> Iterable[Result]:
            results, unanswered = forwarding.everywhere(OWN_DEVICES)
            found = {str(each["name"]): each for each in (*own(EmptyBody()), *results)}
            return [found.get(name) or self._unknown(name, unanswered) for name in self.names()]

        def status(_: EmptyBody) -> Iterable[Result]:
            return [self.status()]

        def storage(_: EmptyBody) -> Iterable[Result]:
            results, unanswered = forwarding.everywhere(OWN_WAITING)
            waiting = [*own_waiting(EmptyBody()), *results]
            return [
                {
                    "waiting": {str(each["name"]): int(each["rows"]) for each in waiting},
                    "oldest_waiting": {
                        str(each["name"]): {"time": each["oldest"], "seconds": each["seconds"]}
                        for each in waiting
                        if each["oldest"] is not None
                    },
                    "replicas": self._replicas(),
                    "unanswered": [asdict(each) for each in unanswered],
                }
            ]

        def own_waiting(_: EmptyBody) -> Iterable[Result]:
            if isinstance(recordings, Recordings):
                yield from (_waiting(name, extents) for name, extents in recordings.waiting().items())

        def cancel(body: CancelBody) -> Iterable[Result]:
            return [{"cancelled": registry.cancel(body.ticket.encode(), body.identity)}]

        about = "The servers of the cluster, and the owner of each device."
        stored = (
            "The recorded rows of each device that wait to be stored in NATS, the time of the oldest, the copies of "
            "what NATS stores, and the servers that gave no answer."
        )
        waits = "The rows of each device recorded by this server that wait to be stored in NATS."
        return [
            replace(local, description=f"{local.description} server: its owner.", run=everywhere),
            Action(OWN_DEVICES, "As `devices`, only those that this server owns.", EmptyBody, own),
            Action(OWN_STREAMS, "Ends the streams of a ticket at this server.", CancelBody, cancel, at_once=True),
            Action(OWN_WAITING, waits, EmptyBody, own_waiting),
            Action("cluster.status", about, EmptyBody, status, at_once=True),
            Action("cluster.storage", stored, EmptyBody, storage),
        ]

    def cancels(self, registry: StreamRegistry) -> Callable[[bytes, str | None], int]:
        """Return a function that cancels the streams of a ticket at all servers: a client may have followed a location.

        `registry` has the streams of this server.
        """

        def cancel(ticket: bytes, identity: str | None) -> int:
            here = registry.cancel(ticket, identity)
            body = CancelBody(ticket=ticket.decode(), identity=identity).model_dump_json().encode()
            results, unanswered = self.forwarding.everywhere(OWN_STREAMS, body)
            cancelled = here + sum(int(each["cancelled"]) for each in results)
            if unanswered and not cancelled:
                raise TransportError(f"the streams may be at a server without answer: {unanswered[0]}", where="cancel")
            return cancelled

        return cancel

    def recording_actions(self, local: Action) -> list[Action]:
        """Return the action `recordings`, with the states at all servers. `local` is that of this server."""
        forwarding = self.forwarding

        def own(_: EmptyBody) -> Iterable[Result]:
            return [each for each in local.run(EmptyBody()) if each["state"] != KEPT]

        def everywhere(_: EmptyBody) -> Iterable[Result]:
            found = {str(each["name"]): each for each in local.run(EmptyBody())}
            states, unanswered = forwarding.everywhere(OWN_RECORDINGS)
            found.update((str(each["name"]), each) for each in states)
            silent = {each.name: each for each in unanswered}
            for name, each in found.items():
                owner = self._ownership.owner(name) if silent else None
                if owner is not None and owner.name in silent and each["state"] == KEPT:
                    found[name] = {**each, "state": f"{UNKNOWN}: {silent[owner.name]}"}
            return list(found.values())

        return [
            replace(local, run=everywhere),
            replace(
                local,
                name=OWN_RECORDINGS,
                description="As `recordings`, only those to which this server adds rows.",
                run=own,
            ),
        ]

    def status(self) -> dict[str, Any]:
        """Return the servers and the owners, as this server sees them."""
        members = self._ownership.members()
        profiles = [*members.values()]
        owners: dict[str, str | None] = {}
        for name in self.names():
            owner = self._ownership.owner(name)
            owners[name] = None if owner is None else owner.name
        return {
            "server": self._settings.name,
            "fleet": self._settings.fleet,
            "nats": ",".join(self._settings.servers),
            "trouble": self._ownership.trouble or None,
            "servers": [
                {
                    "name": name,
                    "location": profile.location,
                    "http": profile.http or None,
                    "devices": sum(owner == name for owner in owners.values()),
                    "differs": self._ownership.differing.get(name, []),
                }
                for name, profile in members.items()
            ],
            "devices": [
                {"name": name, "owner": owner, "why": self._why_gone(name, profiles) or None}
                for name, owner in owners.items()
            ],
        }

    def _replicas(self) -> list[dict[str, Any]]:
        """Return the copies of the stream and of each bucket; nothing if NATS does not say so in time."""
        try:
            found = self._shard.submit(replication(self._connection)).result(REPLICAS_SECONDS)
        except (TimeoutError, concurrent.futures.CancelledError, FastFlightError):
            return []
        return [each.as_json() for each in found]

    def _unknown(self, name: str, unanswered: Iterable[Unanswered]) -> Mapping[str, Any]:
        """Return what there is to say of a device that no server owns, or whose owner gave no answer."""
        owner = self._ownership.owner(name)
        silent = next((each for each in unanswered if owner is not None and each.name == owner.name), None)
        trouble = str(silent) if silent is not None else self.why_gone(name) or UNOWNED
        url = public_url(self._urls[name]) if name in self._urls else ""
        return {
            "name": name,
            "url": url,
            "open": False,
            "holder": None,
            "recording": None,
            "publishing": [],
            "trouble": trouble,
            "last_data": None,
            "server": None if silent is None else silent.name,
        }

    async def _check(self) -> None:
        while True:
            self.forwarding.routes.check()
            await asyncio.sleep(CHECK_SECONDS)


def _waiting(name: str, extents: Sequence[Extent]) -> Result:
    """Return what waits of one recording: the rows, the time of the oldest, and its age by the clock that set it."""
    oldest = min((each.first_time for each in extents if each.first_time is not None), default=None)
    return {
        "name": name,
        "rows": rows_of(extents),
        "oldest": None if oldest is None else datetime.fromtimestamp(oldest / 1e6, UTC).isoformat(),
        "seconds": None if oldest is None else round(max(0.0, time.time() - oldest / 1e6), 3),
    }


async def _opened(
    settings: ClusterSettings, address: NatsAddress, profile: Profile, served: ServedDevices
) -> tuple[ClusterConnection, Ownership]:
    connection = ClusterConnection(address, f"fastflight {settings.name}")
    connection.open()
    ownership = Ownership(connection, profile, served, settings.fleet, servers=len(settings.servers), ttl=settings.ttl)
    return connection, ownership


def profile_of(settings: ServeSettings, boot: str) -> Profile:
    """Return what a server says of itself, without its addresses."""
    cluster = settings.cluster
    assert cluster is not None
    recorded = () if settings.recordings is None else settings.recordings.devices
    devices = {
        name: digest_of(f"{url} {settings.bridges.get(name)} {name in recorded} {settings.publish.get(name)}")
        for name, url in settings.devices.items()
    }
    return Profile(cluster.name, boot, devices=devices, unreachable=cluster.unreachable, local=cluster.local)


def nats_address(settings: ClusterSettings) -> NatsAddress:
    """Return the address of NATS. `RequestError` if the TLS files cannot be used."""
    tls = None
    if settings.ca is not None or settings.cert is not None or any(url.startswith("tls:") for url in settings.servers):
        tls = ssl.create_default_context()
        try:
            if settings.ca is not None:
                tls.load_verify_locations(settings.ca)
            if settings.cert is not None:
                tls.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise RequestError(
                "the TLS files for NATS cannot be used", where="[cluster]", hint="ca, cert and key are PEM files"
            ) from error
    for name, file, seed in (
        ("credentials", settings.credentials, SEED_IN_CREDENTIALS),
        ("nkey", settings.nkey, SEED),
    ):
        if file is not None:
            _check_seed(name, file, seed)
    return NatsAddress(
        settings.servers,
        settings.credentials,
        settings.nkey,
        settings.user,
        settings.password,
        token=settings.nats_token,
        tls=tls,
    )


def _check_seed(key: str, file: Path, seed: re.Pattern[str]) -> None:
    """Raise `RequestError` unless the file has what nats-py takes from it. The error has nothing of its content."""
    try:
        found = seed.search(file.read_text(errors="replace"))
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(file), hint=f"Check cluster.{key}") from error
    if found is None:
        hint = f"Give a file of nsc or nk, as in [cluster] {key} = {EXAMPLES[key]!r}"
        raise RequestError(f"this is no {key} file of NATS", where=str(file), hint=hint)
