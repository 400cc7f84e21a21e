"""A gateway in front of one simulated board, without a network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from fastflight.access.actions import Actions
from fastflight.concurrency import Shard, Shards
from fastflight.device import Device, Inventory
from fastflight.gateway import Backend, application
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.simulator import samples
from fastflight.sources import device_actions, device_sources
from fastflight.sources.state_actions import state_actions

from .asgi_client import HERE, Answered, ask, scope

SOON = 60.0


class BoardGateway:
    """A gateway in front of one simulated board, named `demo`, whose files are in `folder`."""

    def __init__(self, app: GatewayMiddleware, device: Device, shard: Shard, folder: Path) -> None:
        self.app = app
        self.device = device
        self.shard = shard
        self.folder = folder

    def ask(
        self, method: str, path: str, *parts: bytes, query: str = "", headers: dict[str, str] | None = None
    ) -> Answered:
        given = tuple((name.encode(), value.encode()) for name, value in (headers or {}).items())
        asked = scope(f"/devices/demo/files/{path}", method, (HERE, *given), query)
        return self.run(ask(self.app, asked, *parts))

    def run(self, work: Any) -> Any:
        return self.shard.submit(asyncio.wait_for(work, SOON)).result(SOON + 1)


@contextlib.contextmanager
def in_front_of_a_board(folder: Path, **options: int | str) -> Iterator[BoardGateway]:
    """`options` are those of the board's URL."""
    samples.write_samples(str(folder))
    more = "".join(f"&{name}={value}" for name, value in options.items())
    with ExitStack() as parts:
        shards = Shards(1)
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory({"demo": f"sim:?files={folder}&telemetry=0{more}"}, shards=shards))
        parts.enter_context(shards)
        catalog = Catalog()
        for source in device_sources(inventory):
            catalog.add(source)
        registry = StreamRegistry()
        actions = Actions([*state_actions(registry, shards), *device_actions(inventory)])
        shard = parts.enter_context(Shard("gateway"))
        backend = Backend(catalog, actions, registry, shards)
        app = application(backend, CollectorRegistry())
        board = BoardGateway(app, inventory.device("demo"), shard, folder)
        board.ask("GET", "")  # opens the line, which stays open: no leak of the test that comes first
        yield board
