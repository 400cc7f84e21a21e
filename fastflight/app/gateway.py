"""The gateway put together: a backend, its application, and a loop of its own."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from prometheus_client import CollectorRegistry

from fastflight.app.access_settings import TlsFiles
from fastflight.app.remote import RemoteBackend
from fastflight.client.call import DEFAULT_TIMEOUT
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.concurrency import Shard
from fastflight.errors import RequestError
from fastflight.gateway import AllowedTargets, Backend, Door, Gateway, Hear, Relay, Taps, application, listen
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits

ROOT = Path(__file__).parents[2]
# In a checkout, the plots that are kept there. Where fastflight is installed, the folder would be another package's.
PLOTS = ROOT / "docs" / "results" if (ROOT / "pyproject.toml").is_file() else None
# What is asked of the gateway and never waits: its health, its page, encoding. Beside a thread for each call that a
# server admits, and for each stream: an upload to a slow board has one all the time.
SPARE_THREADS = 64


def open_gateway(
    backend: Backend,
    address: tuple[str, int],
    relay: AllowedTargets | None = None,
    origins: Sequence[str] = (),
    *,
    hosts: Sequence[str] = (),
    tls: TlsFiles | None = None,
    taps: Taps = lambda device: None,
    hear: Hear | None = None,
    plots: Path | None = None,
    limits: Limits = DEFAULT_LIMITS,
    timing: bool = False,
) -> Gateway:
    """Serve `backend` at `address`, on an event loop of its own. `relay`: the targets of its relay, if it has one, and
    `taps` see what it carries to devices; with `timing` it logs how long its reads and sends take.

    `origins`: pages of other origins that may ask; `hosts`: names by which it is asked for from elsewhere; `hear`,
    `plots`: see `application`; `limits` are those of the server. With `tls` it is HTTPS; `RequestError`
    where the files do not belong together.
    """
    door = Door(origins, hosts, secure=tls is not None)
    context = None if tls is None else tls_context(tls)
    shard = Shard("gateway", offload_threads=limits.streams + limits.calls + SPARE_THREADS).start()
    try:
        app = application(backend, CollectorRegistry(), door, hear=hear, plots=plots or PLOTS)
        relayed = None
        if relay is not None:
            relayed = Relay(
                relay,
                door,
                app.admit_to_relay,
                check=backend.check,
                taps=taps,
                timing=timing,
                connections=app.connections,
            )
        return listen(app, shard, address[1], address[0], relayed, tls=context)
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
    connection = ServerConnection(location, DEFAULT_TIMEOUT, credentials)
    # What callers show goes on beside nothing of the gateway's own.
    passing = ServerConnection(location, DEFAULT_TIMEOUT, replace(credentials, token=None))
    backend = RemoteBackend(connection, passing=passing)
    closing = contextlib.closing
    with (
        closing(connection),
        closing(passing),
        open_gateway(backend, address, allowed, origins, timing=timing) as gateway,
    ):
        yield gateway


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS as the Flight server has it: with the CA of clients, only those come in that have a certificate of it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(files.cert, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise RequestError(
            "the TLS files cannot be used", where=str(files.cert), hint="A certificate and its own key, in PEM"
        ) from error
    return context
