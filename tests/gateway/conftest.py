"""A gateway in front of sources made for the tests: the application without a network, or listening at a port."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import structlog
from prometheus_client import CollectorRegistry

from fastflight.concurrency import Shard, Shards
from fastflight.gateway import Gateway, LocalBackend, application, listen
from fastflight.gateway.front import Front
from fastflight.service import Catalog, Source
from fastflight.service.action import Action
from fastflight.service.actions import Actions, Nothing, state_actions
from fastflight.service.ledger import Ledger
from fastflight.sources import mock

from ..server.conftest import SOON, Trial, Trials

T = TypeVar("T")


@dataclass
class Running:
    """A gateway's application, its parts, and a loop to ask it on."""

    app: Front
    backend: LocalBackend
    ledger: Ledger
    trials: Trials
    shards: Shards
    shard: Shard

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop on which the gateway would be."""
        return self.shard.submit(asyncio.wait_for(work, SOON)).result(SOON + 1)

    def stats(self) -> dict[str, Any]:
        return self.ledger.stats()


@pytest.fixture
def running() -> Iterator[Running]:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])  # for people, a traceback takes seconds
    trials = Trials()
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    catalog.add(Source(Trial, read=trials.read, aread=trials.aread, write=trials.write, awrite=trials.awrite))
    ledger = Ledger()
    with Shards(1, "device") as shards, Shard("gateway") as shard:
        devices = Action("devices", "None.", Nothing, lambda _: [])
        backend = LocalBackend(catalog, Actions([*state_actions(ledger, shards), devices]), ledger, shards)
        yield Running(application(backend, CollectorRegistry()), backend, ledger, trials, shards, shard)
        assert ledger.wait_empty(SOON)


@pytest.fixture
def listening(running: Running) -> Iterator[Gateway]:
    with listen(running.app, running.shard, 0) as gateway:
        yield gateway


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)
