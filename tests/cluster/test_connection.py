"""The connection to NATS: it comes back, and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from fastflight.app.local_cluster import nats_servers
from fastflight.cluster.bucket import open_bucket
from fastflight.cluster.connection import ClusterConnection, NatsAddress, typed_errors
from fastflight.cluster.recording_stream import STREAM, RecordingStream
from fastflight.cluster.replication import replication
from fastflight.errors import Forbidden, RequestError, StorageFull, TransportError
from tests.support.refusals import refused
from tests.support.waiting import auntil

USERS = 'authorization { users: [ { user: "a", password: "b", permissions: { publish: ["$JS.API.INFO"] } } ] }'


@contextlib.asynccontextmanager
async def opened(address: NatsAddress) -> AsyncIterator[ClusterConnection]:
    connection = ClusterConnection(address, "a test")
    connection.open()
    try:
        yield connection
    finally:
        await connection.aclose()


def test_it_connects_when_nats_starts_and_again_when_it_was_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            await auntil(lambda: "cannot be used" in connection.trouble)
            with refused(TransportError) as raised:
                _ = connection.jetstream
            assert str(raised.value) == connection.trouble
            for _ in range(2):
                nats.nodes[0].start()
                client = await connection.connected()
                assert connection.trouble == "" and (await connection.jetstream.account_info()).streams == 0
                nats.nodes[0].kill()
                await connection.lost(client)

    with nats_servers(tmp_path) as nats:
        nats.nodes[0].kill()
        asyncio.run(scenario())


def test_it_closes_though_the_cancellation_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `asyncio.wait_for` of Python 3.11, which nats-py uses, if what it waits for ends at the same moment."""
    connect = Client.connect

    async def scenario() -> None:
        connecting = asyncio.Event()

        async def connect_and_lose_a_cancellation(client: Client, *arguments: object, **named: object) -> None:
            await connect(client, *arguments, **named)  # type: ignore[arg-type]
            connecting.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        monkeypatch.setattr(Client, "connect", connect_and_lose_a_cancellation)
        async with opened(NatsAddress(nats.urls)):
            await connecting.wait()

    with nats_servers(tmp_path) as nats:
        asyncio.run(scenario())


def test_it_comes_back_after_a_client_that_failed_to_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nats-py 2.17 does when a connection is reset while data waits to be sent. The log has no traceback of it."""

    async def fail(client: Client, status: int, do_cbs: bool = True) -> None:
        if client.is_closed:
            return
        client._status = status
        client._transport.close()
        raise RuntimeError("the handler is closed")

    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            client = await connection.connected()
            nats.nodes[0].kill()
            await connection.lost(client)
            nats.nodes[0].start()
            assert await connection.connected() is not client

    monkeypatch.setattr(Client, "_close", fail)
    reported: list[dict[str, object]] = []
    with nats_servers(tmp_path) as nats, asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: reported.append(context))
        runner.run(scenario())
        gc.collect()
    assert not reported


def test_it_goes_to_another_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            first = await connection.connected()
            await connection.drop()
            await connection.lost(first)
            assert await connection.connected() is not first

    with nats_servers(tmp_path, nodes=3) as nats:
        asyncio.run(scenario())


def test_what_a_user_may_not_publish_is_forbidden(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls, user="a", password="b")) as connection:
            client = await connection.connected()
            with refused(Forbidden), typed_errors("a subject"):
                await client.publish("other", b"")
                refusal = await auntil(lambda: client.last_error)
                assert refusal is not None
                raise refusal

    with nats_servers(tmp_path, settings=USERS) as nats:
        asyncio.run(scenario())


def test_without_jetstream_it_says_how_to_switch_it_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            await auntil(lambda: "JetStream is off. Start nats-server with -js" in connection.trouble)

    with nats_servers(tmp_path, settings="jetstream: disabled") as nats:
        asyncio.run(scenario())


def test_an_old_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            await auntil(lambda: "fastflight needs 99.0. Update nats-server" in connection.trouble)

    monkeypatch.setattr("fastflight.cluster.connection.MIN_VERSION", (99, 0))
    with nats_servers(tmp_path) as nats:
        asyncio.run(scenario())


def test_a_full_stream_is_a_storage_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            await connection.connected()
            jetstream = connection.jetstream
            await jetstream.add_stream(name="s", subjects=["s"], max_msgs=1, discard="new")
            await jetstream.publish("s", b"1")
            with refused(StorageFull), typed_errors("the stream s"):
                await jetstream.publish("s", b"2")
            with refused(RequestError), typed_errors("the stream t"):
                await jetstream.stream_info("t")

    with nats_servers(tmp_path) as nats:
        asyncio.run(scenario())


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_fleet_that_began_with_one_nats_server_gets_more_copies(tmp_path: Path, nodes: int) -> None:
    async def copies(connection: ClusterConnection, wanted: int) -> dict[str, int]:
        await RecordingStream(connection, "fleet", wanted).bounds()
        await open_bucket(await connection.connected(), "fleet", wanted)
        return {each["name"]: each["replicas"] for each in await replication(connection, wanted)}

    async def scenario() -> None:
        async with opened(NatsAddress(nats.urls)) as connection:
            await connection.connected()
            assert await copies(connection, 1) == {"ff-owners": 1, STREAM: 1}
            with capture_logs() as logs:
                assert await copies(connection, 3) == {"ff-owners": nodes, STREAM: nodes}
            refusals = {entry["stream"] for entry in logs if entry["log_level"] == "warning"}
            # A server alone cannot keep more copies. It says so, and all goes on.
            assert refusals == (set() if nodes == 3 else {"KV_ff-owners", STREAM})
            assert {each["wanted"] for each in await replication(connection, 3)} == {3}
            assert {each["replicas"] for each in await replication(connection, 1)} == {nodes}

    with nats_servers(tmp_path, nodes) as nats:
        asyncio.run(scenario())
