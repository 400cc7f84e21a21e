"""Starts the gateway on an event loop of its own, in the server's process.

Importing this module loads FastAPI, which takes longer than most commands run.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

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
    OriginPolicy,
    Relay,
    application,
    listen,
    tap_listeners,
)

# For work that never waits: health, the page, encoding. Each admitted call and each stream needs a thread besides: an
# upload to a slow board occupies one all the time.
SPARE_THREADS = 64


def open_gateway(
    config: Config, backend: Backend, inventory: Inventory, bridges: Mapping[str, Ports], metrics: CollectorRegistry
) -> Gateway:
    """Serve `backend` at `config.http`, by HTTPS with `config.tls`, with a relay to the targets of `config`.

    A stream through the relay to a port of `bridges` counts as one to the bridged device. In a cluster, other servers
    have devices too, so the live page reads sessions, which are passed on, and not the lines of `inventory`.
    `RequestError` if the TLS files do not belong together.
    """
    assert config.http is not None
    host, port = config.http
    bridged = {
        f"{LOOPBACK}:{number}": name
        for name, ports in bridges.items()
        for number in (ports.rfc2217, ports.socket)
        if number is not None
    }
    targets = AllowedTargets(config.relay.allow, devices=bridged) if config.relay.allow else None
    policy = OriginPolicy(config.origins, config.http_hosts, secure=config.tls is not None)
    context = None if config.tls is None else tls_context(config.tls)
    threads = config.limits.streams + config.limits.calls + SPARE_THREADS
    shard = Shard("gateway", offload_threads=threads).start()
    try:
        relay = None if targets is None else Relay(targets, timing=config.log_debug)
        listener = tap_listeners(inventory) if config.cluster is None else None
        app = application(backend, metrics, policy, open_listener=listener, relay=relay)
        return listen(app, shard, port, host, tls=context)
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
