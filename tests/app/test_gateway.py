"""The gateway put together: that those who wait keep nobody else from an answer."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from prometheus_client import CollectorRegistry

from fastflight.access.action import Action, EmptyBody
from fastflight.access.actions import Actions
from fastflight.app.gateway import open_gateway
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.gateway import Backend
from fastflight.runtime.admission import DEFAULT_LIMITS
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.sources.state_actions import state_actions
from tests.support.servers import config

SOON = 10.0


def test_as_many_calls_as_are_admitted_keep_nobody_from_the_servers_health() -> None:
    begun, freed = threading.Semaphore(0), threading.Event()

    def wait(_: EmptyBody) -> Iterator[Any]:
        begun.release()
        freed.wait()
        return iter(())

    registry = StreamRegistry()
    with ExitStack() as parts:
        shards = parts.enter_context(Shards(1, "device"))
        actions = Actions([*state_actions(registry, shards), Action("wait", "Waits.", EmptyBody, wait)])
        backend = Backend(Catalog(), actions, registry, shards)
        inventory = parts.enter_context(Inventory({}))
        gateway = parts.enter_context(
            open_gateway(config(http=("127.0.0.1", 0)), backend, inventory, {}, CollectorRegistry())
        )
        parts.callback(freed.set)
        for _ in range(DEFAULT_LIMITS.calls):
            waiting = parts.enter_context(socket.create_connection(("127.0.0.1", gateway.port), SOON))
            waiting.sendall(b"POST /actions/wait HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n")
        for _ in range(DEFAULT_LIMITS.calls):
            assert begun.acquire(timeout=SOON)
        client = parts.enter_context(closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SOON)))
        client.request("GET", "/health")
        assert client.getresponse().read() == b'{"status": "serving"}'
