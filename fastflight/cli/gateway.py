"""`fastflight gateway`, and the gateway of `serve --http`: the same requests over HTTP."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fastflight.concurrency import Shard
from fastflight.gateway import Backend, Gateway, application, listen


def open_gateway(backend: Backend, address: tuple[str, int]) -> Gateway:
    """Serve `backend` at `address`, on an event loop of its own."""
    shard = Shard("gateway").start()
    try:
        return listen(application(backend, CollectorRegistry()), shard, address[1], address[0])
    except BaseException:
        shard.close()
        raise
