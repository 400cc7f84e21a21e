"""The same bad requests over Flight and over HTTP: the same refusals, in the same words."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.flight as flight
import pytest
from prometheus_client import CollectorRegistry

from fastflight.access.actions import Actions
from fastflight.concurrency import Shard, Shards
from fastflight.device import Inventory
from fastflight.gateway import Backend, application
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.simulator import samples
from fastflight.sources import device_sources

from ..flight.refusal import DEVICE, INVALID_ARGUMENT, NOT_FOUND, OLD
from ..flight.test_bad_input import REQUESTS
from .asgi_client import HERE, ask, scope

SOON = 30.0
STATUS = {INVALID_ARGUMENT: (400, 422), NOT_FOUND: (404,), DEVICE: (502, 400, 409)}


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Both edges in front of one board: `over_flight` gives a refusal's text, `over_http` its status and
    content."""
    folder = tmp_path_factory.mktemp("board")
    samples.write_samples(str(folder))
    (folder / "old.csv").write_bytes(OLD)
    shards = Shards(1)
    with Inventory({"demo": f"sim:?files={folder}&telemetry=0"}, shards=shards) as inventory, shards:
        catalog, registry = Catalog(), StreamRegistry()
        for source in device_sources(inventory):
            catalog.add(source)
        with Shard("gateway") as shard:
            server = FlightServer(catalog, shards=shards, location="grpc://127.0.0.1:0", registry=registry)
            app = application(Backend(catalog, Actions([]), registry, shards), CollectorRegistry())
            client = flight.connect(f"grpc://127.0.0.1:{server.port}")

            def over_flight(content: bytes) -> str:
                with pytest.raises(Exception) as raised:
                    client.do_get(flight.Ticket(content)).read_all()
                return str(raised.value)

            def over_http(content: bytes) -> tuple[int, dict[str, Any]]:
                answered = shard.submit(ask(app, scope("/stream", "POST", (HERE,)), content)).result(SOON)
                return answered.status, answered.json

            over_flight(b'{"type": "device.listing", "device": "demo", "path": "/none"}')  # opens the line
            yield over_flight, over_http
            client.close()
            server.close()


# What fails when it runs fails among the rows, whose schema is known before.
REFUSED = [name for name in REQUESTS if name != "code that is none"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_the_same_over_both(edges: Any, name: str) -> None:
    over_flight, over_http = edges
    request, kind, _ = REQUESTS[name]
    content = json.dumps(request).encode()
    status, told = over_http(content)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    assert status in [allowed for each in kinds for allowed in STATUS[each]]
    # Flight cuts long texts, and appends what Arrow knows.
    assert told["text"][:700] in over_flight(content)
    assert "site-packages" not in json.dumps(told)
