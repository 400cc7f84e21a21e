"""A server that wants to know who asks, and its gateway at a port."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from fastflight.access.actions import Actions
from fastflight.access.authenticator import Authenticator
from fastflight.access.authority import Authority
from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, Token, issued
from fastflight.concurrency import Shard, Shards
from fastflight.device import Inventory
from fastflight.gateway import (
    AllowedTargets,
    Backend,
    Gateway,
    Relay,
    application,
    listen,
    tap_listeners,
)
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog
from fastflight.sources import device_actions, device_sources, recording_actions
from fastflight.sources.state_actions import state_actions
from fastflight_benchmark import mock

SOON = 60.0
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
# By name, what each token grants. `lab-1` and `secret` are the devices.
GRANTED = {
    "reader": ("read:lab-*",),
    "listener": ("session:lab-1",),
    "operator": ("read,write,session,exec:lab-*",),
    "other": ("read,write,session,exec:secret",),
    "admin": ("admin:*",),
}
DEVICES = {"lab-1": "sim:?telemetry=20", "secret": "sim:?telemetry=20"}


@dataclass
class GuardedAnswer:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class GuardedGateway:
    """The gateway, and the tokens that its server knows, by name."""

    gateway: Gateway
    tokens: dict[str, str]
    _book: list[Book] = field(default_factory=list)

    def ask(self, who: str, method: str, path: str, content: bytes = b"", **headers: str) -> GuardedAnswer:
        """Ask with the token of a name; with none for the empty name."""
        if who:
            headers["authorization"] = f"Bearer {self.tokens[who]}"
        with closing(http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=SOON)) as connection:
            connection.request(method, path, content or None, headers)
            answer = connection.getresponse()
            return GuardedAnswer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())

    def ticket(self, who: str, use: str, **request: Any) -> str:
        said = self.ask(who, "POST", f"/tickets?for={use}", json.dumps(request).encode())
        assert said.status == 201, said.body
        return str(said.json["ticket"])

    @property
    def ws(self) -> str:
        return self.gateway.url.replace("http", "ws")

    def revoke(self, who: str) -> None:
        """Take a token out of the book."""
        left = self._book[-1].without(who)
        self._book.append(left)

    def expire(self, who: str) -> None:
        """Have a token be over, as if it had been given for a time."""
        tokens = (replace(each, expires=CREATED) if each.name == who else each for each in self._book[-1].tokens)
        self._book.append(Book(tuple(tokens)))


@contextmanager
def guarding(devices: dict[str, str] = DEVICES, relay: AllowedTargets | None = None) -> Iterator[GuardedGateway]:
    made: dict[str, tuple[Token, str]] = {
        name: issued(name, scopes(granted), CREATED) for name, granted in GRANTED.items()
    }
    books = [Book(tuple(token for token, _ in made.values()))]
    read: list[Book] = []

    def changed() -> bytes | None:
        if read and read[-1] is books[-1]:
            return None
        read.append(books[-1])
        return books[-1].encode()

    with ExitStack() as parts:
        shards = Shards(1)
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory(devices, shards=shards))
        parts.enter_context(shards)
        catalog, registry = Catalog(), StreamRegistry()
        for source in (*device_sources(inventory), mock.SOURCE):
            catalog.add(source)
        authority, authenticator = Authority(lambda: devices, lambda: ()), Authenticator(changed)
        on_devices = [*device_actions(inventory), *recording_actions(None)]
        actions = Actions([*state_actions(registry, shards), *on_devices], authority)
        backend = Backend(catalog, actions, registry, shards, authority, authenticator)
        shard = Shard("gateway").start()
        relaying = None if relay is None else Relay(relay)
        app = application(backend, CollectorRegistry(), open_listener=tap_listeners(inventory), relay=relaying)
        gateway = parts.enter_context(listen(app, shard, 0))
        parts.callback(registry.drain)
        yield GuardedGateway(gateway, {name: text for name, (_, text) in made.items()}, books)
