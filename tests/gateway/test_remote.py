"""A gateway in front of a server that goes away and comes back. What it serves is in the tests that have both kinds."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from fastflight.access.identity import ANYBODY
from fastflight.app.remote import RemoteBackend
from fastflight.client.connection import ServerConnection
from fastflight.concurrency import Shard, Shards
from fastflight.errors import FastFlightError, Stopped
from fastflight.gateway import application
from fastflight.gateway.auth import ANYONE, Caller
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.sources import mock
from tests.support.waiting import until

from .asgi_client import HERE, Answered, ask, scope

SOON = 30.0
MOCK = {"type": "mock", "variant": "simple", "total_rows": 1}


def serve(port: int, shards: Shards) -> FlightServer:
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    return FlightServer(catalog, shards=shards, location=f"grpc://127.0.0.1:{port}", registry=StreamRegistry())


def test_a_server_that_went_away_is_found_again() -> None:
    with Shards(1) as first, Shards(1) as second, Shard("gateway") as shard:
        server = serve(0, first)
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}", SOON)) as connection:
            app = application(RemoteBackend(connection), CollectorRegistry())

            def run(work: Any) -> Any:
                return shard.submit(asyncio.wait_for(work, SOON)).result(SOON + 1)

            def rows() -> Answered:
                answered: Answered = run(
                    ask(app, scope("/stream", "POST", (HERE, (b"accept", b"text/csv"))), json.dumps(MOCK).encode())
                )
                return answered

            assert rows().status == 200
            port = server.port
            server.close(0)
            away = rows()
            assert (away.status, away.json["code"].partition(".")[0]) == (502, "transport")
            health, ready = run(ask(app, scope("/health"))), run(ask(app, scope("/health/ready")))
            for told in (health, ready):
                assert (told.status, told.json["status"], told.headers[b"retry-after"]) == (503, "unreachable", b"1")
                assert str(port) in told.json["where"]
            with closing(serve(port, second)):
                found = until(lambda: (again := rows()).status != 502 and again)  # gRPC tries again within two seconds
                assert (found.status, found.body) == (200, b"col_0,col_1,col_2,col_3\n0,1,2,3\n")


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
def test_health_is_told_in_front_of_a_server_that_is_frozen(path: str) -> None:
    """Long before `SOON` and the connection's own limit, at which any other request fails."""
    with Shard("gateway") as shard, socket.create_server(("127.0.0.1", 0)) as frozen:
        with closing(ServerConnection(f"grpc://127.0.0.1:{frozen.getsockname()[1]}", 10 * SOON)) as connection:
            app = application(RemoteBackend(connection), CollectorRegistry())
            told = shard.submit(asyncio.wait_for(ask(app, scope(path)), SOON)).result(SOON + 1)
    assert (told.status, told.json["status"]) == (503, "unreachable")
    assert "did not answer in time" in told.json["text"]


def test_a_write_that_has_failed_when_its_client_leaves_is_nobodys_news() -> None:
    """Nor has the log a traceback of it."""
    logged: list[dict[str, Any]] = []

    async def leaving() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch([[1]], ["n"])
        await asyncio.wait({task for task in asyncio.all_tasks() if task is not asyncio.current_task()})  # has failed
        raise Stopped("the client has left")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: logged.append(told))
        with closing(ServerConnection("grpc://127.0.0.1:1", SOON)) as connection:
            backend = RemoteBackend(connection)
            with pytest.raises(FastFlightError):
                await backend.write(backend.make_request(MOCK), pa.schema([("n", pa.int64())]), leaving())

    asyncio.run(main())
    gc.collect()
    assert logged == []


def test_who_shows_a_token_goes_on_with_it_whatever_the_server_calls_them() -> None:
    with Shards(1) as shards, Shard("gateway") as shard, closing(serve(0, shards)) as server:
        with closing(ServerConnection(f"grpc://127.0.0.1:{server.port}", SOON)) as connection:
            backend = RemoteBackend(connection)

            def known(authorization: str) -> Caller:
                return shard.submit(backend.identify(authorization, "")).result(SOON)

            # A token may have the name and the scopes that a server gives to whoever asks where it wants no proof.
            assert known("Bearer one") == Caller(ANYBODY, "Bearer one")
            assert known("") is ANYONE
