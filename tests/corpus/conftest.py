"""One server, by Flight and by HTTP, in front of one simulated board, for all cases of a module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from prometheus_client import CollectorRegistry

from fastflight.access.actions import Actions
from fastflight.concurrency import Shard, Shards
from fastflight.device import Inventory
from fastflight.gateway import Backend, application, listen
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.sources import device_actions, device_sources
from fastflight.sources.state_actions import state_actions
from fastflight_benchmark import mock

from .case import Case, discreet

CONTENT = b"n\n1\n2\n3\n"
# What pyarrow's client says of the error beside it, on its own account.
_OF_THE_CLIENT = re.compile(r"\. gRPC client debug context: .*", re.DOTALL)
_KIND = re.compile(r"Detail: Python exception: (\w+)")


@dataclass
class Edges:
    """Both edges of a server whose device `demo` holds `/a.csv` and the folder `/d`."""

    folder: Path
    location: str
    client: flight.FlightClient
    http: httpx.Client
    cases: int = 0

    def refused(self, case: Case, error: Exception) -> None:
        """By Flight: the class that our error's name or code says, its text, and nothing of the host."""
        assert case.error is not None, f"refused: {error!r}"
        text = _OF_THE_CLIENT.sub("", str(error))
        told = json.loads(error.extra_info) if isinstance(error, flight.FlightError) and error.extra_info else {}
        named = _KIND.search(text)
        assert named is not None or told, repr(error)
        if named is not None:
            assert named[1] == case.error.__name__, text
        else:
            assert str(told["code"]).startswith(case.error.code), told
        assert case.says in text, text
        discreet(text)

    def answered(self, case: Case, answer: httpx.Response) -> None:
        """By HTTP: the same code and text."""
        assert 400 <= answer.status_code < 600, answer.text[:500]
        told = answer.json()
        assert case.error is not None
        assert told["code"].startswith(case.error.code), told
        assert case.says in told["text"], told
        discreet(told["text"])

    def goes_on(self) -> None:
        """After a case: `whole`, for each tenth."""
        self.cases += 1
        if self.cases % 10 == 0:
            self.whole()

    def whole(self) -> None:
        """Whatever came before: the server answers a good request, and the file is as it was."""
        request = flight.Ticket(b'{"type": "device.file", "device": "demo", "path": "/a.csv"}')
        assert self.client.do_get(request).read_all().column("n").to_pylist() == [1, 2, 3]
        assert self.http.get("/devices/demo/files/a.csv").content == CONTENT
        assert sorted(path.name for path in self.folder.rglob("*")) == ["a.csv", "d"]

    def get(self, ticket: bytes) -> pa.Table:
        return self.client.do_get(flight.Ticket(ticket)).read_all()

    def act(self, name: str, body: bytes) -> list[Any]:
        return list(self.client.do_action(flight.Action(name, body)))


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    folder = tmp_path_factory.mktemp("board")
    (folder / "a.csv").write_bytes(CONTENT)
    (folder / "d").mkdir()
    with ExitStack() as parts:
        shards = Shards(1)
        parts.callback(shards.close)
        devices = {"demo": f"sim:?files={folder}&telemetry=0"}
        inventory = parts.enter_context(Inventory(devices, shards=shards))
        parts.enter_context(shards)
        catalog = Catalog()
        for source in (*device_sources(inventory), mock.SOURCE):
            catalog.add(source)
        registry, actions = StreamRegistry(), device_actions(inventory)
        server = FlightServer(catalog, actions, shards=shards, location="grpc://127.0.0.1:0", registry=registry)
        parts.callback(server.close)
        backend = Backend(catalog, Actions([*state_actions(registry, shards), *actions]), registry, shards)
        shard = parts.enter_context(Shard("gateway"))
        gateway = parts.enter_context(listen(application(backend, CollectorRegistry()), shard, 0))
        location = f"grpc://127.0.0.1:{server.port}"
        client = parts.enter_context(flight.connect(location))
        # A connection that waited for the next case may be closed just as that begins: the server closes each.
        headers = {"connection": "close"}
        http = parts.enter_context(httpx.Client(base_url=gateway.url, trust_env=False, headers=headers))
        running = Edges(folder, location, client, http)
        running.whole()  # the board is open: what it keeps open is not a test's
        yield running
        running.whole()
