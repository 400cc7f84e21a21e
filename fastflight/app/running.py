"""A running server and the edges that it opens."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import pyarrow as pa
import structlog
from prometheus_client.metrics_core import Metric

from fastflight.access.action import Action
from fastflight.access.actions import Actions
from fastflight.app.access import Access
from fastflight.app.http_settings import DEFAULT_HOST
from fastflight.app.settings import ServeSettings
from fastflight.bridge import Bridge, Ports
from fastflight.bridge.opening import OPENINGS
from fastflight.concurrency import Shard, Shards
from fastflight.device import Inventory
from fastflight.errors import TransportError
from fastflight.runtime.metrics import device_labels, family
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog

if TYPE_CHECKING:
    from fastflight.gateway import Gateway

NO_BRIDGES: Mapping[str, Ports] = {}


log = structlog.get_logger(__name__)

# Streams are told to end before the gateway is closed: this is for answers that are being written.
GATEWAY_SECONDS = 1.0


class RunningServer:
    """A server that answers at `location`, at `http`, and on its devices' `bridges`, until it is closed."""

    def __init__(
        self,
        location: str,
        devices: Mapping[str, str],
        bridges: Mapping[str, Ports],
        parts: ExitStack,
        http: str | None = None,
    ) -> None:
        self.location = location
        self.devices = devices
        self.bridges = bridges
        self.http = http
        self._parts = parts

    def close(self) -> None:
        """Refuse new calls, let running ones end, then give back what the server owns, the devices last."""
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def drain(
    registry: StreamRegistry,
    seconds: float,
    bridges: Sequence[tuple[Bridge, Shard]] = (),
) -> None:
    """Nothing new from now on, and `seconds` for open streams to end; then they are told to. `health` is answered.

    Tools at `bridges`, on their shards, have as long.
    """
    registry.drain()
    until = time.monotonic() + seconds
    draining = [shard.submit(bridge.drain(seconds)) for bridge, shard in bridges]
    if not registry.wait_empty(seconds):
        log.info("streams are ended", streams=registry.stats()["open"], drain_seconds=seconds)
        registry.stop_all()
    concurrent.futures.wait(draining, max(0.0, until - time.monotonic()))


def bridge_metrics(bridges: Mapping[str, Bridge]) -> Iterator[Metric]:
    """Of each bridge: how many browsers it refused."""
    labels = device_labels(bridges)
    refused = [
        ((labels[name], protocol), bridge.refused[protocol])
        for name, bridge in bridges.items()
        for protocol in OPENINGS
    ]
    yield family("fastflight_bridge_browsers_total", refused)


def location_of(settings: ServeSettings, server: FlightServer) -> str:
    """Where the server is, with the port that it had."""
    address = urlsplit(settings.location)
    host = f"[{address.hostname}]" if ":" in str(address.hostname) else address.hostname
    return f"{address.scheme}://{host}:{server.port}"


def gateway(
    serving: tuple[Catalog, Actions, StreamRegistry, Shards],
    inventory: Inventory | None,
    settings: ServeSettings,
    access: Access,
    bridges: Mapping[str, Ports] = NO_BRIDGES,
) -> Gateway:
    """Serve the same over HTTP, and relay to what is allowed and to devices that are targets of the relay.

    Imported only here: FastAPI takes longer to load than most commands to run.
    """
    from fastflight.app.gateway import open_gateway
    from fastflight.gateway import AllowedTargets, LocalBackend, taps

    assert settings.http is not None
    relayed = [device for device in (() if inventory is None else inventory.devices()) if device.relayed]
    targets = {device.relayed: device.name for device in relayed}
    lines = {
        f"{DEFAULT_HOST}:{port}": name
        for name, ports in bridges.items()
        for port in (ports.rfc2217, ports.socket)
        if port is not None
    }
    for device in relayed:
        device.tap.begin_line("")
    return open_gateway(
        LocalBackend(*serving, authority=access.authority, authenticator=access.authenticator),
        settings.http,
        AllowedTargets((*settings.relay, *targets), devices=lines | targets) if settings.relay or targets else None,
        settings.origins,
        hosts=settings.http_hosts,
        tls=settings.access.tls,
        taps={device.name: device.tap for device in relayed}.get,
        hear=None if inventory is None else taps(inventory),
        plots=settings.plots,
        limits=settings.limits,
        timing=settings.log_debug,
    )


def listening(
    catalog: Catalog,
    actions: list[Action],
    shards: Shards,
    location: str,
    registry: StreamRegistry,
    access: Access,
    state: list[Action] | None = None,
    trace: bool = False,
) -> FlightServer:
    """A Flight server at `location`; `state` are its `health` and `stats`, where they say more than everywhere."""
    try:
        return FlightServer(
            catalog,
            actions,
            shards=shards,
            location=location,
            registry=registry,
            state=state,
            authority=access.authority,
            authenticator=access.authenticator,
            tls=access.tls,
            trace=trace,
        )
    except (pa.ArrowException, OSError) as error:
        raise TransportError(
            "cannot listen there",
            where=location,
            hint="Another server may have the port: stop it, or choose another one with --server"
            if access.tls is None
            else "Another server may have the port, or the TLS files do not belong together",
        ) from error
