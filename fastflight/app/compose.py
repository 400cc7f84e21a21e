"""Builds a server from its config: devices, sources, recordings, the Flight server, bridges and the gateway.

`fastflight serve` runs `open_server`. Tests and the benchmark start a server in their own process with it. Users do
with `create_server`, which takes their own sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from prometheus_client.metrics_core import Metric

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.app.addresses import check_location, http_address
from fastflight.app.collecting import Collectors
from fastflight.app.config import Config, DeviceTable
from fastflight.app.device_address import device_address
from fastflight.app.device_changes import device_changes
from fastflight.app.own_sources import sources_of
from fastflight.app.recording_setup import open_recordings, typed_rows
from fastflight.app.running import (
    RunningServer,
    authenticator_of,
    bridge_metrics,
    drain,
    flight_sql,
    listening,
    location_of,
    tls_of,
)
from fastflight.app.served_devices import ServedDevices
from fastflight.app.watching import Watching
from fastflight.client import DEFAULT_LOCATION
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.extras import needs
from fastflight.publish import Publishers
from fastflight.runtime.metrics import FunctionCollector
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.service.own_source import Source
from fastflight.sources import (
    DeviceFiles,
    FileCache,
    LiveLayouts,
    Recordings,
    device_actions,
    device_sources,
    recording_actions,
    recording_source,
)
from fastflight.sources.metrics import device_metrics, recording_metrics
from fastflight.sources.recordings import NoRecordings
from fastflight.sources.state_actions import server_metrics, state_actions
from fastflight.sql.engine import SqlEngine, SqlSource
from fastflight.sql.tables import Tables

# Streams have been stopped when the gateway is closed. This is for answers that are still being written.
GATEWAY_SECONDS = 1.0


def open_server(config: Config) -> RunningServer:
    """Start a server. `RequestError` for a wrong setting, `TransportError` if an address cannot be listened on.

    What is opened first is closed last.
    """
    check_location(config.location, tls=config.tls is not None, tokens=config.auth is not None)
    if config.http is not None:
        # Before anything is opened. Only here, because FastAPI takes longer to load than most commands run.
        with needs("http", "--http"):
            from fastflight.app.gateway import open_gateway
            from fastflight.gateway import Backend
    if config.cluster is not None:
        with needs("cluster", "--cluster"):
            from fastflight.app.cluster import ClusterMember
            from fastflight.app.cluster_actions import ClusterActions
    # Arrow imports pandas when it first makes an array of Python values. On a busy computer that takes seconds; in the
    # first request it would block an event loop that reads devices.
    pa.array([0])
    with ExitStack() as parts:
        shards = Shards(
            config.shards,
            owners=[each.name for each in config.sources if isinstance(each, Source) and each.runs_on_loop],
        )
        # Here in case the inventory cannot be opened; below, so that it is closed before the inventory.
        parts.callback(shards.close)
        # `ServedDevices` adds the devices.
        inventory = parts.enter_context(Inventory({}, shards=shards, parse=device_address))
        # Closed after the shards, when no more lines are read: everything that was read is then recorded.
        recordings = open_recordings(config, inventory)
        if recordings is not None:
            parts.callback(recordings.close)
        parts.enter_context(shards)
        registry = StreamRegistry(config.limits)
        log_of = (recordings or NoRecordings()).log
        publishers = Publishers(log_of, None if recordings is None else recordings.folder)
        # Before the shards and the recordings, from which publishers read.
        parts.callback(publishers.close)
        served = ServedDevices(config, inventory, shards, recordings, registry, publishers)
        parts.callback(served.close)
        served.open()
        collectors = Collectors(inventory)
        parts.callback(collectors.close)
        collectors.apply(config.devices)
        catalog = Catalog()
        files = DeviceFiles(inventory, FileCache(config.sql.cache, config.sql.cache_bytes), served.keys_of)
        parts.callback(files.cache.close)
        typed = typed_rows(recordings, log_of, served.layout_of)
        layouts = LiveLayouts(served.layout_of, typed.recognised)

        def has_live(name: str) -> bool:
            """Whether a device has live rows. Of another server's device, its recording shows that."""
            device = inventory.find(name)
            return typed.has_table(name) if device is None else layouts.has_table(device)

        member: ClusterMember | None = None
        if config.cluster is not None:
            member = ClusterMember(config, served, inventory, catalog)
            parts.callback(member.close)
        on_board = device_sources(
            inventory,
            config.limits.idle_seconds,
            files,
            names=None if member is None else member.names,
            passed_on=None if member is None else member.forwarding.passed_on,
            layouts=layouts,
        )
        for source in (*on_board, recording_source(recordings, typed), *config.sources):
            catalog.add(source)
        watching = Watching(inventory, recordings, lambda device: layouts.find(device).layout, config.alert_rules)
        on_devices = [
            *device_actions(inventory, publishers.states, watching.crashes.summary),
            *device_changes(served),
        ]
        on_crashes = [watching.crashes.action()]
        recorded, *on_recordings = recording_actions(recordings)
        cancels = None
        if member is None:
            on_devices += [recorded, *on_recordings, *on_crashes]
        else:
            in_cluster = ClusterActions(member, recordings, registry)
            cancels = in_cluster.cancel
            listing, *others = on_devices
            on_devices = [
                *in_cluster.about_devices(listing),
                *in_cluster.about_recordings(recorded),
                *in_cluster.about_crashes(*on_crashes),
                *map(member.forwarding.action, (*others, *on_recordings)),
            ]
        metrics = server_metrics(registry, shards)
        metrics.register(FunctionCollector(lambda: device_metrics(inventory)))
        metrics.register(FunctionCollector(lambda: _recording_metrics(recordings)))
        metrics.register(FunctionCollector(publishers.metrics))
        metrics.register(FunctionCollector(watching.metrics))
        state = state_actions(registry, shards, metrics, in_cluster=member is not None)
        names = inventory.names if member is None else member.names
        authority = Authority(names, None if recordings is None else recordings.names)
        authenticator = authenticator_of(config.auth)
        actions = Actions([*state, *on_devices], authority)
        tables = files if member is None else member.forwarding.files(files)
        recordings_folder = None if recordings is None else recordings.folder
        sql_tables = Tables(catalog, actions, authority, tables, log_of, typed, has_live)
        engine = SqlEngine(sql_tables, config.sql.limits, recordings_folder)
        parts.callback(engine.close)
        catalog.add(SqlSource(engine))
        with listening(config):
            server = FlightServer(
                catalog,
                on_devices,
                shards=shards,
                location=config.location,
                registry=registry,
                state=state,
                authority=authority,
                authenticator=authenticator,
                tls=tls_of(config.tls),
                trace=config.trace,
                sql=flight_sql(engine),
                cancels=cancels,
            )
        parts.callback(server.close, 0)
        # Before the server, which closes the event loops.
        parts.callback(served.close_bridges)
        served.open_bridges()
        metrics.register(FunctionCollector(lambda: bridge_metrics(served.bridges)))
        http = None
        if config.http is not None:
            backend = Backend(catalog, actions, registry, shards, authority=authority, authenticator=authenticator)
            gateway = open_gateway(config, backend, inventory, served.ports, metrics)
            parts.callback(gateway.close, GATEWAY_SECONDS)
            http = gateway.url
        location = location_of(config, server)
        if member is not None:
            member.open(location, http)
            # After the streams have ended, and while every edge still answers.
            parts.callback(member.leave)
        # Before devices are given up or closed.
        parts.callback(watching.close)
        watching.start()
        # Runs first, while every edge still answers.
        parts.callback(lambda: drain(registry, config.drain_seconds, served.bridges_on_shards(), publishers))
        return RunningServer(location, config.urls, served, collectors, watching, parts.pop_all(), http, member)
    raise AssertionError("ExitStack suppresses no exception")


def create_server(
    location: str = DEFAULT_LOCATION,
    *,
    sources: Iterable[Any] = (),
    devices: Mapping[str, str] | None = None,
    http: str | None = None,
) -> RunningServer:
    """Start a server, which answers until its `close`. It is a context manager; `location` of it has the real port.

    `sources` are `Source` objects, or classes as for `Source.of`. `devices` are URLs by name. `http` is the port of the
    gateway, perhaps with a host. Raises `RequestError` for a wrong argument, and `TransportError` if an address cannot
    be listened on. The other settings of a server are options of `fastflight serve`.
    """
    return open_server(
        Config(
            location=location,
            devices={name: DeviceTable(url=url) for name, url in (devices or {}).items()},
            http=None if http is None else http_address(http),
            sources=sources_of((f"sources[{number}]", source) for number, source in enumerate(sources)),
        )
    )


def _recording_metrics(recordings: Recordings | None) -> Iterable[Metric]:
    return recording_metrics(recordings) if recordings is not None and recordings.is_open else ()
