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
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastflight.app.config import ClusterSettings, Config
from fastflight.app.forwarding import Forwarding
from fastflight.app.served_devices import ServedDevices
from fastflight.client.credentials import Credentials
from fastflight.cluster.connection import ClusterConnection, NatsAddress
from fastflight.cluster.ownership import Ownership
from fastflight.cluster.profile import Profile, digest_of
from fastflight.cluster.replication import replication
from fastflight.concurrency import Shard
from fastflight.device import Inventory
from fastflight.errors import FastFlightError, RequestError
from fastflight.service import Catalog
from fastflight.transport.url import public_url

# How long giving up all devices may take at shutdown. Leases that are still there then end by themselves.
LEAVE_SECONDS = 10.0
# How often streams from servers that have gone are looked for.
CHECK_SECONDS = 1.0
# How long NATS may take to say what it has.
REPLICAS_SECONDS = 3.0
# Where files of NATS have the seed of a key, and how they are named.
SEED = re.compile(r"\A\s*S[A-Z2-7]{57}\s*\Z")
SEED_IN_CREDENTIALS = re.compile(r"BEGIN NATS USER JWT-+\s+\S+\s.*BEGIN USER NKEY SEED-+\s+S[A-Z2-7]{57}\s", re.DOTALL)
EXAMPLES = {"credentials": "server.creds", "nkey": "server.nk"}


class ClusterMember:
    """This server in its cluster. `open` begins to take devices; `close` gives them all up.

    `forwarding`, which the sources and actions of the server use, asks it who owns a device. Any thread may do so.
    """

    def __init__(
        self,
        config: Config,
        served: ServedDevices,
        inventory: Inventory,
        catalog: Catalog,
    ) -> None:
        assert config.cluster is not None
        self._settings = config.cluster
        self.name = config.cluster.name
        self._urls = config.urls
        self._connection = ClusterConnection(nats_address(self._settings), f"fastflight {self.name}")
        self._ownership = Ownership(
            self._connection,
            profile_of(config, secrets.token_hex(8)),
            served,
            self._settings.fleet,
            servers=len(self._settings.servers),
            ttl=self._settings.ttl,
        )
        ca = self._settings.server_ca_pem if config.location.startswith("grpc+tls:") else None
        self.forwarding = Forwarding(inventory, self, catalog, Credentials(self._settings.token, ca=ca))
        self._running: list[concurrent.futures.Future[None]] = []
        self._shard = Shard("cluster").start()
        self._shard.submit(self._connect()).result()

    def open(self, location: str, http: str | None) -> None:
        """Begin to take devices. `location` and `http` are the addresses at which this server listens."""
        mine = self._ownership.profile
        self._ownership.describe(replace(mine, location=self._settings.location or location, http=http or ""))
        self._running = [self._shard.submit(self._ownership.run()), self._shard.submit(self._check())]

    def apply(self, config: Config) -> None:
        """Use the devices of a fleet file that was read again. Those that have changed are taken anew."""
        self._urls = config.urls
        before = self._ownership.profile
        after = profile_of(config, before.boot)
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

    def names(self) -> list[str]:
        """The devices of all servers that are alive, with this server's own first."""
        return list(dict.fromkeys(name for devices in self._fleets() for name in devices))

    def has(self, device: str) -> bool:
        """Whether the device is in the fleet file of a server that is alive."""
        return any(device in devices for devices in self._fleets())

    def _fleets(self) -> list[Mapping[str, str]]:
        return [each.devices for each in (self._ownership.profile, *self._ownership.members().values())]

    def owner(self, device: str) -> str | None:
        """The name of the server that owns the device; None if no server does at the moment."""
        owner = self._ownership.owner(device)
        return None if owner is None else owner.name

    def url(self, device: str) -> str:
        """The URL of a device without its secrets; empty if this server's fleet file does not have the device."""
        return public_url(self._urls[device]) if device in self._urls else ""

    def location(self, device: str) -> str | None:
        """The address of the other server that owns the device; None if no other server does at the moment."""
        owner = self._ownership.owner(device)
        if owner is None or owner.boot == self._ownership.profile.boot or self._has_my_address(owner):
            return None
        return owner.location

    def locations(self, device: str) -> list[str]:
        """The addresses of all servers, the owner's first; no address if no living server has the device."""
        servers = self._ownership.members().values()
        if not any(device in each.devices for each in (self._ownership.profile, *servers)):
            return []
        owner = self._ownership.owner(device)
        others = [profile.location for profile in servers]
        return list(dict.fromkeys([*([owner.location] if owner else []), *others]))

    @property
    def settled_seconds(self) -> float:
        """For how long no server has taken over or given up a device."""
        return self._ownership.settled_seconds

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

    def _has_my_address(self, server: Profile) -> bool:
        """Whether another server gives this one's address as its own, as two that listen on loopback may do.

        A request that is passed on there would come back here, again and again.
        """
        mine = self._ownership.profile
        return server.boot != mine.boot and server.location == mine.location

    def why_gone(self, device: str, members: Iterable[Profile] | None = None) -> str:
        """Why no server can own the device; empty if one will soon. `members` are the servers, if they are known."""
        if members is None:
            members = self._ownership.members().values()
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

    def status(self) -> dict[str, Any]:
        """Return the servers and the owners, as this server sees them."""
        members = self._ownership.members()
        owners = {name: self.owner(name) for name in self.names()}
        return {
            "server": self.name,
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
                {"name": name, "owner": owner, "why": self.why_gone(name, members.values()) or None}
                for name, owner in owners.items()
            ],
        }

    def replicas(self) -> list[dict[str, Any]]:
        """Return the copies of the stream and of each bucket; nothing if NATS does not say so in time."""
        try:
            asked = replication(self._connection, len(self._settings.servers))
            return self._shard.submit(asked).result(REPLICAS_SECONDS)
        except (TimeoutError, concurrent.futures.CancelledError, FastFlightError):
            return []

    async def _connect(self) -> None:
        self._connection.open()

    async def _check(self) -> None:
        while True:
            self.forwarding.routes.check()
            await asyncio.sleep(CHECK_SECONDS)


def profile_of(config: Config, boot: str) -> Profile:
    """Return what a server says of itself, without its addresses."""
    cluster = config.cluster
    assert cluster is not None
    devices = {
        name: digest_of(device.model_dump_json(exclude={"collect", "files", "servers"}))
        for name, device in config.devices.items()
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
