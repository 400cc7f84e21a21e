"""The front: the server at the given address, whose devices are those of its workers."""

from __future__ import annotations

from contextlib import ExitStack

from fastflight.cli.access import access_of
from fastflight.cli.running import GATEWAY_SECONDS, RunningServer, drain, gateway, listening, location_of
from fastflight.cli.settings import ServeSettings
from fastflight.cli.workers.actions import forwarded_actions, front_actions
from fastflight.cli.workers.forward import forwarded_sources
from fastflight.cli.workers.pool import Pool
from fastflight.cli.workers.share import memory_of
from fastflight.concurrency import Governor, Shards
from fastflight.service import Catalog
from fastflight.service.actions import Actions
from fastflight.service.authority import Authority
from fastflight.service.ledger import Ledger
from fastflight.sources import recording_actions, recording_source


def open_front(settings: ServeSettings) -> RunningServer:
    """Start the workers, then serve. Errors as those of `open_server`; what a worker could not do is told here."""
    with ExitStack() as parts:
        governor = Governor(memory_of(settings))
        shards = parts.enter_context(Shards(settings.shards, governor=governor))
        pool = Pool(settings, governor)
        parts.callback(pool.close)
        catalog = Catalog()
        for source in (*forwarded_sources(pool, shards), recording_source(None)):
            catalog.add(source)
        on_devices = [*forwarded_actions(pool), *recording_actions(None)]
        ledger = Ledger(settings.limits, governor)
        state = front_actions(ledger, shards, pool)
        authority = Authority(pool.names)
        access = access_of(settings.access, authority)
        server = listening(catalog, on_devices, shards, settings.location, ledger, access, state, settings.trace)
        parts.callback(server.close, 0)
        http = None
        if settings.http is not None:
            serving = catalog, Actions([*state, *on_devices], authority), ledger, shards
            opened = gateway(serving, None, settings, access)
            parts.callback(opened.close, GATEWAY_SECONDS)
            http = opened.url
        # First of all: what is live ends by itself then, here and at the workers, which drain as long.
        parts.callback(drain, ledger, settings.drain_seconds, pool.stop)
        bridges = {name: ports for worker in pool.workers for name, ports in worker.bridges.items()}
        return RunningServer(location_of(settings, server), settings.devices, bridges, parts.pop_all(), http)
    raise AssertionError("the stack keeps no error to itself")
