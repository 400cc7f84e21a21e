"""The settings of a server, from a command line and a fleet file; the command line wins. `settings_of` makes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fastflight.app.access_settings import (
    OPEN,
    AccessSettings,
    access_settings,
    check_location,
    is_loopback,
)
from fastflight.app.cluster_settings import ClusterSettings, cluster_settings
from fastflight.app.collecting import CollectSettings, collect_settings
from fastflight.app.device_address import device_address
from fastflight.app.fleet_file import (
    LIMITS_EXAMPLE,
    FleetBridge,
    FleetLimits,
    FleetTables,
    check_device_name,
    read_fleet_file,
)
from fastflight.app.http_settings import http_address, http_hosts, http_origins
from fastflight.app.publish_settings import publish_settings
from fastflight.app.recording_settings import RecordingSettings, recording_settings
from fastflight.app.sql_settings import SqlSettings, sql_settings
from fastflight.bridge import Ports
from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import RequestError
from fastflight.publish import PublishSettings
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits
from fastflight.service.choices import DEVICE_NAME
from fastflight.service.requests import TextKeys
from fastflight.transport.url import public_url

if TYPE_CHECKING:
    from fastflight.service.own_source import Source

# Without any device given: a simulated board, which needs no hardware.
DEFAULT_DEVICES = {"demo": "sim:"}
# All event loops share one interpreter lock. More of them do not make a server faster, they only isolate slow devices.
MAX_DEFAULT_SHARDS = 4
# Each shard has threads of its own.
MAX_SHARDS = 64
# What open streams get by default to end by themselves.
DRAIN_SECONDS = 5.0
# Enough for a large file to a slow board.
MAX_DRAIN_SECONDS = 3600.0
NOT_ENCRYPTED = (
    "There is no encryption and no login here: whoever reaches the port owns the boards. "
    "Use 127.0.0.1, and a tunnel (ssh -L) from elsewhere"
)


# Limits that a command line may give; None where it does not.
NO_LIMITS: Mapping[str, int | None] = {}


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """The bridge of one device: its ports, and whether a new client takes the device over from the present one."""

    ports: Ports
    takeover: bool = False


def default_shards() -> int:
    """One event loop for each core that this process may use, at most `MAX_DEFAULT_SHARDS`."""
    affinity = getattr(os, "sched_getaffinity", None)  # on Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(cores, MAX_DEFAULT_SHARDS)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """A server: its address (port 0 takes a free one), its devices (name to URL), and the bridges of some of them.

    `shards` is the number of event loops that read devices, `limits` bound streams and calls.
    """

    location: str = DEFAULT_LOCATION
    devices: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_DEVICES))
    bridges: Mapping[str, BridgeSettings] = field(default_factory=dict)
    shards: int = field(default_factory=default_shards)
    # Host and port of the gateway; None for no gateway.
    http: tuple[str, int] | None = None
    # Host names by which other computers reach the gateway.
    http_hosts: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS
    # Targets to which clients of the gateway may open TCP streams, as in `fastflight.gateway.relay.targets`.
    relay: tuple[str, ...] = ()
    # Origins of pages elsewhere that may send requests to the gateway.
    origins: tuple[str, ...] = ()
    # The user's own sources.
    sources: tuple[Source[Any], ...] = ()
    # What devices publish, by name.
    publish: Mapping[str, PublishSettings] = field(default_factory=dict)
    # None where nothing can be recorded.
    recordings: RecordingSettings | None = None
    sql: SqlSettings = SqlSettings()
    # Open streams get this long to end by themselves when the server shuts down.
    drain_seconds: float = DRAIN_SECONDS
    # Tokens and TLS.
    access: AccessSettings = OPEN
    # None for a server on its own.
    cluster: ClusterSettings | None = None
    log_debug: bool = False
    # Accept request ids and trace context from unauthenticated clients, too.
    trace: bool = False
    # The devices whose programs run the agent.
    agents: frozenset[str] = frozenset()
    # What an interrupted program gets to clean up, in seconds, by device; others get `GRACE_SECONDS`.
    graces: Mapping[str, float] = field(default_factory=dict)
    # The logs of devices that the server collects, by name.
    collect: Mapping[str, CollectSettings] = field(default_factory=dict)
    # How text files are written, by the name of a device and a glob over its paths.
    files: Mapping[str, Mapping[str, TextKeys]] = field(default_factory=dict)


def settings_of(
    location: str,
    devices: Sequence[str],
    fleet: Path | None,
    shards: int | None = None,
    limits: Mapping[str, int | None] = NO_LIMITS,
    *,
    recordings: Path | None = None,
    record: Sequence[str] = (),
    cache: Path | None = None,
    http: str | None = None,
    http_host: Sequence[str] = (),
    relay: Sequence[str] = (),
    origins: Sequence[str] = (),
    drain_seconds: float = DRAIN_SECONDS,
    tokens: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    client_ca: Path | None = None,
    cluster: str | None = None,
    cluster_name: str | None = None,
    cluster_location: str | None = None,
) -> ServeSettings:
    """Combine the options of a command line with a fleet file. `RequestError` names the option or key that is wrong.

    `devices` are `NAME=URL`. A limit that is None is taken from the fleet file; `relay` adds to the file's targets.
    """
    file = read_fleet_file(fleet) if fleet is not None else FleetTables(devices={})
    folder = fleet.parent if fleet is not None else None
    access = access_settings(
        file.auth, file.tls, folder, tokens=tokens, cert=tls_cert, key=tls_key, client_ca=client_ca
    )
    check_location(location, access, DEFAULT_LOCATION)
    urls = {name: device.url for name, device in file.devices.items()}
    for text in devices:
        name, url = _from_option(text)
        if name in urls:
            raise RequestError("two devices have this name", where=name, hint="Give each a name of its own")
        urls[name] = url
    bridges = {name: _bridge_of(device.bridge) for name, device in file.devices.items() if device.bridge is not None}
    urls = urls or dict(DEFAULT_DEVICES)
    for url in urls.values():
        device_address(url)
    recorded = recording_settings(
        urls,
        marked=[name for name, device in file.devices.items() if device.record],
        table=file.recordings,
        fleet_folder=folder,
        folder=recordings,
        record=record,
        environment=os.environ,
    )
    published = {
        name: publish_settings(name, device.publish, device.rows, folder or Path(), os.environ)
        for name, device in file.devices.items()
        if device.publish or device.rows is not None
    }
    allowed = (*file.relay.allow, *relay)
    if allowed and http is None:
        raise RequestError(
            "the relay is a part of the gateway", where=f"relay to {allowed[0]}", hint="Give --http PORT"
        )
    clustered = None
    if cluster is not None:
        clustered = cluster_settings(
            cluster,
            file.cluster,
            folder or Path(),
            os.environ,
            name=cluster_name,
            listening=location,
            location=cluster_location,
            access=access,
            urls=urls,
            owners={name: device.servers for name, device in file.devices.items()},
        )
    address = None if http is None else http_address(http, access)
    return ServeSettings(
        location,
        urls,
        bridges,
        shards or default_shards(),
        agents=frozenset(name for name, device in file.devices.items() if device.agent),
        graces={name: device.grace for name, device in file.devices.items()},
        collect={
            name: collect_settings(device.collect, folder or Path(), f"devices.{name}.collect")
            for name, device in file.devices.items()
            if device.collect is not None
        },
        files={name: device.files for name, device in file.devices.items() if device.files},
        http=address,
        http_hosts=http_hosts(http_host, address),
        relay=allowed,
        origins=http_origins(origins),
        publish=published,
        recordings=recorded,
        sql=sql_settings(file.sql, folder, cache),
        limits=_limits(file.limits, limits),
        drain_seconds=drain_seconds,
        access=access,
        cluster=clustered,
    )


def _limits(of_file: FleetLimits, options: Mapping[str, int | None]) -> Limits:
    """The limits of the fleet file, replaced by those options that are not None."""
    given = {name: limit for name, limit in options.items() if limit is not None}
    try:
        return Limits(**FleetLimits.model_validate({**of_file.model_dump(), **given}).model_dump())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ")
        raise RequestError(what, where=f"the limit {first['loc'][0]}", hint=LIMITS_EXAMPLE) from error


def check_host(host: str) -> None:
    """Raise `RequestError` unless `host` is a loopback address: a bridge has no access control."""
    if not is_loopback(host):
        raise RequestError("only this computer's own addresses can be bridged to", where=host, hint=NOT_ENCRYPTED)


def _from_option(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals or not url or not DEVICE_NAME.fullmatch(name):
        raise RequestError(
            "not NAME=URL", where=f"--device {public_url(text)}", hint="As in weather=serial:///dev/ttyACM0"
        )
    check_device_name(name, "--device")
    return name, url


def _bridge_of(bridge: FleetBridge) -> BridgeSettings:
    return BridgeSettings(Ports(bridge.rfc2217, bridge.socket, bridge.viewers), bridge.takeover)
