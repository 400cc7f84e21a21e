"""The composition root: devices, sources and a server put together from settings.

`open_server` is what `fastflight serve` runs, and what tests and the benchmark start in their own process.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Iterable
from contextlib import ExitStack

import pyarrow as pa
from prometheus_client.metrics_core import Metric

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.app.access import access_of
from fastflight.app.access_settings import check_location
from fastflight.app.running import (
    GATEWAY_SECONDS,
    RunningServer,
    bridge_metrics,
    drain,
    gateway,
    listening,
    location_of,
)
from fastflight.app.settings import BridgeSettings, ServeSettings
from fastflight.bridge import Bridge, DeviceFront
from fastflight.client import DEFAULT_LOCATION
from fastflight.concurrency import Shard, Shards
from fastflight.device import Device, Inventory
from fastflight.errors import Stopped
from fastflight.runtime.metrics import FunctionCollector
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.sources import (
    DefaultRecordings,
    Recordings,
    device_actions,
    device_sources,
    mock,
    recording_actions,
    recording_source,
)
from fastflight.sources.metrics import device_metrics, recording_metrics
from fastflight.sources.state_actions import server_metrics, state_actions

# For a bridge to tell its clients and hang up.
BRIDGE_SECONDS = 5.0


def open_server(settings: ServeSettings) -> RunningServer:
    """Start serving. `RequestError` for a wrong setting, `TransportError` where the address cannot be had."""
    check_location(settings.location, settings.access, DEFAULT_LOCATION)
    # Arrow looks for pandas when it first makes an array of Python's values. That takes seconds on a busy computer, in
    # which no line would be read if the first request had it happen on a loop.
    pa.array([0])
    with ExitStack() as parts:
        shards = Shards(settings.shards)
        # Closed when there is no inventory to come; else before the inventory, whose lines it reads.
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory(settings.devices, shards=shards))
        # Closed when nothing reads the lines any more, so that all that was read is kept.
        recordings = _recordings(settings, inventory, parts)
        parts.enter_context(shards)
        if recordings is not None and settings.recordings is not None:
            for name in settings.recordings.devices:
                recordings.start(name)
        # After the recorders, which have their place in the traffic by now.
        parts.enter_context(inventory.listening())
        catalog = Catalog()
        on_board = device_sources(inventory, settings.limits.idle_seconds)
        for source in (*on_board, recording_source(recordings), mock.SOURCE):
            catalog.add(source)
        on_devices = [*device_actions(inventory), *recording_actions(recordings)]
        registry = StreamRegistry(settings.limits)
        metrics = server_metrics(registry, shards)
        metrics.register(FunctionCollector(lambda: device_metrics(inventory)))
        metrics.register(FunctionCollector(lambda: _recording_metrics(recordings)))
        state = state_actions(registry, shards, metrics)
        authority = Authority(inventory.names, None if recordings is None else recordings.names)
        access = access_of(settings.access, authority)
        server = listening(catalog, on_devices, shards, settings.location, registry, access, state, settings.trace)
        parts.callback(server.close, 0)
        opened_bridges = {
            name: _bridged(inventory.device(name), it, shards.of(name), parts) for name, it in settings.bridges.items()
        }
        metrics.register(FunctionCollector(lambda: bridge_metrics(opened_bridges)))
        bridges = {name: bridge.ports for name, bridge in opened_bridges.items()}
        # Closed before the server, which takes the shards with it.
        http = None
        if settings.http is not None:
            actions = Actions([*state, *on_devices], authority)
            serving = catalog, actions, registry, shards
            opened = gateway(serving, inventory, settings, access, bridges)
            parts.callback(opened.close, GATEWAY_SECONDS)
            http = opened.url
        on_shards = [(bridge, shards.of(name)) for name, bridge in opened_bridges.items()]
        # First of all, while every edge still answers.
        parts.callback(drain, registry, settings.drain_seconds, bridges=on_shards)
        return RunningServer(location_of(settings, server), settings.devices, bridges, parts.pop_all(), http)
    raise AssertionError("the stack keeps no error to itself")


def _recording_metrics(recordings: Recordings | DefaultRecordings | None) -> Iterable[Metric]:
    opened = recordings.opened if isinstance(recordings, DefaultRecordings) else recordings
    return () if opened is None else recording_metrics(opened)


def _recordings(
    settings: ServeSettings, inventory: Inventory, parts: ExitStack
) -> Recordings | DefaultRecordings | None:
    """What the server keeps, for as long as `parts` last."""
    kept = settings.recordings
    if kept is None:
        return None
    holder = f"the server at {settings.location}"
    recordings: Recordings | DefaultRecordings
    if kept.on_demand:
        recordings = DefaultRecordings(kept.folder, inventory, holder)
    else:
        recordings = Recordings(kept.folder, inventory, sync_ms=kept.sync_ms, retention=kept.retention, holder=holder)
    parts.callback(recordings.close)
    return recordings


def _bridged(device: Device, settings: BridgeSettings, shard: Shard, parts: ExitStack) -> Bridge:
    """Open a device's bridge, for as long as `parts` last."""
    bridge = Bridge(DeviceFront(device), settings.ports, takeover=settings.takeover)
    shard.submit(bridge.start()).result()
    parts.callback(_close, bridge, shard)
    return bridge


def _close(bridge: Bridge, shard: Shard) -> None:
    """It takes about a second, unless its loop is stuck."""
    with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError, Stopped):
        shard.submit(bridge.aclose()).result(BRIDGE_SECONDS)
