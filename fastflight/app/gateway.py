"""Starts the gateway on an event loop of its own, in the server's process.

Importing this module loads FastAPI, which takes longer than most commands run.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from fastflight.app.addresses import LOOPBACK
from fastflight.app.config import Config, TlsTable
from fastflight.bridge import Ports
from fastflight.concurrency import Shard
from fastflight.device import Inventory
from fastflight.errors import RequestError
from fastflight.gateway import (
    AllowedTargets,
    Backend,
    Gateway,
    LocalBackend,
    OpenListener,
    OriginPolicy,
    Relay,
    application,
    listen,
    tap_listeners,
)
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits

# For work that never waits: health, the page, encoding. Each admitted call and each stream needs a thread besides: an
# upload to a slow board occupies one all the time.
SPARE_THREADS = 64


def open_local_gateway(
    config: Config,
    address: tuple[str, int],
    backend: LocalBackend,
    inventory: Inventory,
    bridges: Mapping[str, Ports],
    *,
    shared: bool = False,
) -> Gateway:
    """Serve `backend` over HTTP, with a relay to the targets of `config`.

    A stream through the relay to a port of `bridges` counts as one to the bridged device. With `shared`, other servers
    have devices too, so the live page reads sessions, which are passed on, and not the lines of `inventory`.
    """
    bridged = {
        f"{LOOPBACK}:{port}": name
        for name, ports in bridges.items()
        for port in (ports.rfc2217, ports.socket)
        if port is not None
    }
    return open_gateway(
        backend,
        address,
        AllowedTargets(config.relay.allow, devices=bridged) if config.relay.allow else None,
        config.origins,
        hosts=config.http_hosts,
        tls=config.tls,
        open_listener=None if shared else tap_listeners(inventory),
        limits=config.limits,
        timing=config.log_debug,
    )


def open_gateway(
    backend: Backend,
    address: tuple[str, int],
    relay: AllowedTargets | None = None,
    origins: Sequence[str] = (),
    *,
    hosts: Sequence[str] = (),
    tls: TlsTable | None = None,
    open_listener: OpenListener | None = None,
    limits: Limits = DEFAULT_LIMITS,
    timing: bool = False,
) -> Gateway:
    """Serve `backend` at `address`, by HTTPS with `tls`.

    `relay`: the targets of the relay; None for no relay. With `timing` it logs how long its reads and sends take.
    `origins`: pages of other origins that may send requests; `hosts`: names by which other computers reach the gateway;
    `open_listener`: see `application`; `limits`: those of the server. `RequestError` if the TLS files do not
    belong together.
    """
    policy = OriginPolicy(origins, hosts, secure=tls is not None)
    context = None if tls is None else tls_context(tls)
    shard = Shard("gateway", offload_threads=limits.streams + limits.calls + SPARE_THREADS).start()
    try:
        relaying = None if relay is None else Relay(relay, timing=timing)
        app = application(backend, CollectorRegistry(), policy, open_listener=open_listener, relay=relaying)
        return listen(app, shard, address[1], address[0], tls=context)
    except BaseException:
        shard.close()
        raise


def tls_context(files: TlsTable) -> ssl.SSLContext:
    """Return a context for a server. With `client_ca`, clients need a certificate that it signed."""
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
