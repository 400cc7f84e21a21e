"""The permissions file of the documentation: enough for a server, and nothing for others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from fastflight.app.config import ClusterSettings, RecordingSettings
from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.client import FastFlightClient
from fastflight.errors import TransportError
from tests.support.servers import serving
from tests.support.waiting import until

FILE = Path(__file__).parents[2] / "docs" / "nats-permissions.conf"
USERS = f"""authorization {{
  users: [
    {{ user: server, password: secret, include "{FILE.name}" }}
    {{ user: other, password: other, permissions: {{ publish: "other.>", subscribe: "_INBOX.>" }} }}
  ]
}}"""
SUBJECTS = ("rec.>", "$KV.ff-owners.>", ">")
REQUESTS = (
    "$JS.API.STREAM.INFO.fastflight",
    "$JS.API.STREAM.MSG.GET.fastflight",
    "$JS.API.DIRECT.GET.fastflight",
    "$JS.API.STREAM.PURGE.fastflight",
    "$JS.API.CONSUMER.CREATE.fastflight",
    "rec.alpha",
)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServers]:
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / FILE.name).write_text(FILE.read_text())
    with nats_servers(tmp_path / "nats", settings=USERS) as servers:
        yield servers


@contextlib.asynccontextmanager
async def connected(
    url: str, failures: list[str], user: str | None = None, password: str | None = None
) -> AsyncIterator[Client]:
    async def note(error: Exception) -> None:
        failures.append(str(error))

    client = Client()
    try:
        await client.connect(
            url, error_cb=note, allow_reconnect=False, max_reconnect_attempts=1, user=user, password=password
        )
        yield client
    finally:
        await client.close()


def test_a_server_needs_no_more_and_others_get_nothing(nats: NatsServers, tmp_path: Path) -> None:
    cluster = ClusterSettings(servers=nats.urls, name="alpha", user="server", password="secret", ttl=1.5)
    recordings = RecordingSettings(folder=tmp_path / "recordings", sync_ms=20)
    with (
        serving(
            {"demo": "sim:?telemetry=50"}, cluster=cluster, recordings=recordings, record=["demo"], shards=1
        ) as server,
        FastFlightClient(server.location) as client,
    ):

        def is_recorded() -> bool:
            with contextlib.suppress(TransportError):  # not connected to NATS yet
                return any(each.rows > 20 and each.state == "recording" for each in client.recordings())
            return False

        until(is_recorded)
        assert client.recording("demo").to_arrow().num_rows > 20
        asyncio.run(strangers(nats.url))
    (log,) = (tmp_path / "nats").glob("*.log")
    refused = [line for line in log.read_text().splitlines() if "Violation" in line and "user:server" in line]
    assert not refused


async def strangers(url: str) -> None:
    """A client without credentials cannot connect. Another user gets no answer, no row and no lease."""
    with pytest.raises(NatsError):
        async with connected(url, []):
            pass
    with pytest.raises(NatsError):
        async with connected(url, [], user="server", password="wrong"):
            pass
    failures: list[str] = []
    async with connected(url, failures, user="other", password="other") as other:
        for subject in SUBJECTS:
            seen = await other.subscribe(subject)
            with pytest.raises(NatsError):
                await seen.next_msg(1)
        for subject in REQUESTS:
            with pytest.raises(NatsError):
                await other.request(subject, b"", timeout=0.2)
    found = " ".join(failures).lower()
    assert all(f'violation for subscription to "{subject.lower()}"' in found for subject in SUBJECTS)
    assert all(f'violation for publish to "{subject.lower()}"' in found for subject in REQUESTS)
