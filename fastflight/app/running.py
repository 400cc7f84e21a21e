"""A running server, the edges that it opens, whom they let in, and how it drains."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import pyarrow as pa
import structlog
from prometheus_client.metrics_core import Metric

from fastflight.access.authenticator import Authenticator, Tls
from fastflight.app.collecting import Collectors
from fastflight.app.config import AuthTable, Config, TlsTable
from fastflight.app.key_files import read_pem
from fastflight.app.served_devices import ServedDevices
from fastflight.app.token_file import TokenFile
from fastflight.app.watching import Watching
from fastflight.bridge import Bridge, Ports
from fastflight.bridge.opening import OPENINGS
from fastflight.concurrency import Shard
from fastflight.errors import RequestError, TransportError
from fastflight.publish import Publishers
from fastflight.runtime.metrics import device_labels, family
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.server.flight_sql import FlightSql
from fastflight.sql.engine import SqlEngine

if TYPE_CHECKING:
    from fastflight.app.cluster import ClusterMember

log = structlog.get_logger(__name__)


class RunningServer:
    """A server that answers at `location`, at `http`, and at the ports of its bridges, until it is closed.

    `devices` are the names and URLs at the start. `served` holds the present devices, and adds and removes them.
    `member` is this server in its cluster, None if it is alone.
    """

    def __init__(
        self,
        location: str,
        devices: Mapping[str, str],
        served: ServedDevices,
        collectors: Collectors,
        watching: Watching,
        parts: ExitStack,
        http: str | None = None,
        member: ClusterMember | None = None,
    ) -> None:
        self.location = location
        self.devices = devices
        self.served = served
        self._collectors = collectors
        self._watching = watching
        self.http = http
        self.member = member
        self._parts = parts

    @property
    def bridges(self) -> Mapping[str, Ports]:
        """The open ports of bridges, by device."""
        return self.served.ports

    def apply(self, config: Config) -> None:
        """Change the devices and the alerts to those of `config`, which were read again."""
        self.served.apply(config)
        self._collectors.apply(config.devices)
        self._watching.apply(config.alert_rules)
        if self.member is not None:
            self.member.apply(config)

    def close(self) -> None:
        """Refuse new calls, drain open streams, then close all that the server owns, the devices last."""
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def drain(
    registry: StreamRegistry,
    seconds: float,
    bridges: Sequence[tuple[Bridge, Shard]] = (),
    publishers: Publishers | None = None,
) -> None:
    """Refuse new streams, wait `seconds` for open ones to end, then stop the rest. `health` is answered meanwhile.

    Clients of `bridges`, each with the shard that it runs on, and `publishers` get the same time.
    """
    registry.drain()
    deadline = time.monotonic() + seconds
    draining = [shard.submit(bridge.drain(seconds)) for bridge, shard in bridges]
    draining += [] if publishers is None else publishers.drain()
    if not registry.wait_empty(seconds):
        log.info("streams are ended", streams=registry.stats()["open"], drain_seconds=seconds)
        registry.stop_all()
    concurrent.futures.wait(draining, max(0.0, deadline - time.monotonic()))


def bridge_metrics(bridges: Mapping[str, Bridge]) -> Iterator[Metric]:
    """Count, for each bridge and port, the browsers that it refused."""
    labels = device_labels(bridges)
    refused = [
        ((labels[name], protocol), bridge.refused[protocol])
        for name, bridge in bridges.items()
        for protocol in OPENINGS
    ]
    yield family("fastflight_bridge_browsers_total", refused)


def location_of(config: Config, server: FlightServer) -> str:
    """Return the server's URL with its real port: the one in `config` may be 0."""
    address = urlsplit(config.location)
    host = f"[{address.hostname}]" if ":" in str(address.hostname) else address.hostname
    return f"{address.scheme}://{host}:{server.port}"


def flight_sql(engine: SqlEngine) -> FlightSql | None:
    """Return the object that answers Flight SQL; None if the extra `sql` is not installed."""
    try:
        if importlib.util.find_spec("duckdb") is None or importlib.util.find_spec("google.protobuf") is None:
            return None
    except ModuleNotFoundError:  # nor is there another package `google`
        return None
    return FlightSql(engine)


def authenticator_of(auth: AuthTable | None) -> Authenticator | None:
    """Read the token file of the settings; None without one. `RequestError` names what is missing or wrong in it."""
    if auth is None:
        return None
    try:
        return Authenticator(TokenFile(auth.tokens))
    except RequestError as error:
        if str(auth.tokens) in error.where:
            raise
        where = f"{auth.tokens}: {error.where}" if error.where else str(auth.tokens)
        raise RequestError(error.what, where=where, hint=error.hint) from error


def tls_of(tls: TlsTable | None) -> Tls | None:
    """Read the TLS files of the settings; None without them. `RequestError` names the one that cannot be used."""
    if tls is None:
        return None
    client_ca = None if tls.client_ca is None else read_pem(tls.client_ca)
    return Tls(read_pem(tls.cert), read_pem(tls.key), client_ca)


@contextlib.contextmanager
def listening(config: Config) -> Iterator[None]:
    """Raise `TransportError` if the block cannot listen at the address of `config`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TransportError(
            "cannot listen there",
            where=config.location,
            hint="Another server may have the port: stop it, or choose another one with --server"
            if config.tls is None
            else "Another server may have the port, or the TLS files do not belong together",
        ) from error
