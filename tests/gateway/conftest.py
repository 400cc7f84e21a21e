"""A gateway in front of sources made for the tests: the application without a network, or listening at a port."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import structlog
from playwright.sync_api import Browser

from fastflight.access.action import Action, EmptyBody
from fastflight.access.actions import Actions
from fastflight.concurrency import Shard, Shards
from fastflight.gateway import Backend, Gateway, application, listen
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.sources.state_actions import server_metrics, state_actions
from fastflight_benchmark import mock

from ..server.conftest import SOON, Trials, lively
from .browsing import launched

T = TypeVar("T")
__all__ = ["lively"]


@dataclass
class TrialGateway:
    """A gateway's application, its parts, and a loop to ask it on."""

    app: GatewayMiddleware
    backend: Backend
    registry: StreamRegistry
    trials: Trials
    shards: Shards
    shard: Shard

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop on which the gateway would be."""
        return self.shard.submit(asyncio.wait_for(work, SOON)).result(SOON + 1)

    def stats(self) -> dict[str, Any]:
        return self.registry.stats()


@pytest.fixture
def running() -> Iterator[TrialGateway]:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])  # for people, a traceback takes seconds
    trials = Trials()
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    catalog.add(trials.source)
    registry = StreamRegistry()
    with Shards(1, "device") as shards, Shard("gateway") as shard:
        devices = Action("devices", "None.", EmptyBody, lambda _: [])
        backend = Backend(catalog, Actions([*state_actions(registry, shards), devices]), registry, shards)
        app = application(backend, server_metrics(registry, shards))
        yield TrialGateway(app, backend, registry, trials, shards, shard)
        assert registry.wait_empty(SOON)


@pytest.fixture
def listening(running: TrialGateway) -> Iterator[Gateway]:
    with listen(running.app, running.shard, 0) as gateway:
        yield gateway


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless Chromium."""
    with launched(chromium) as running:
        yield running
