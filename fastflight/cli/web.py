"""The gateway put together: a backend, its application, and a loop of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from prometheus_client import CollectorRegistry

from fastflight.cli.remote import RemoteBackend
from fastflight.client.call import DEFAULT_TIMEOUT
from fastflight.client.connection import Connection
from fastflight.client.credentials import NONE, Credentials
from fastflight.concurrency import Shard
from fastflight.gateway import AllowedTargets, Backend, Door, Gateway, Hear, Relay, Taps, application, listen

# In a checkout, where the benchmark leaves its plots; elsewhere it is not there, and the page shows none.
PLOTS = Path(__file__).parents[2] / "docs" / "results"


def open_gateway(
    backend: Backend,
    address: tuple[str, int],
    relay: AllowedTargets | None = None,
    origins: Sequence[str] = (),
    *,
    taps: Taps = lambda device: None,
    hear: Hear | None = None,
    plots: Path | None = None,
    timing: bool = False,
) -> Gateway:
    """Serve `backend` at `address`, on an event loop of its own. `relay`: the targets of its relay, if it has one, and
    `taps` see what it carries to devices; with `timing` it logs how long its reads and sends take.

    `origins`: pages of other origins that may ask; `hear`, `plots`: see `application`.
    """
    relayed = Relay(relay, Door(origins), taps=taps, timing=timing) if relay else None
    shard = Shard("gateway").start()
    try:
        app = application(backend, CollectorRegistry(), Door(origins), hear=hear, plots=plots or PLOTS)
        return listen(app, shard, address[1], address[0], relayed)
    except BaseException:
        shard.close()
        raise


@contextlib.contextmanager
def open_remote_gateway(
    location: str,
    address: tuple[str, int],
    relay: Sequence[str] = (),
    origins: Sequence[str] = (),
    *,
    timing: bool = False,
    credentials: Credentials = NONE,
) -> Iterator[Gateway]:
    """The same in front of the server at `location`, which is shown `credentials`; that one may start later.

    The relay is this computer's: it connects from here, and to where this gateway may. `RequestError` names a target
    that is none.
    """
    allowed = AllowedTargets(relay) if relay else None
    pa.array([0])  # as in `open_server`: it has Arrow look for pandas now, and not on the loop
    connection = Connection(location, DEFAULT_TIMEOUT, credentials)
    backend = RemoteBackend(connection)
    with contextlib.closing(connection), open_gateway(backend, address, allowed, origins, timing=timing) as gateway:
        yield gateway
