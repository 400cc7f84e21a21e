"""Passes requests for devices of other servers on to their owners: the one place where a cluster's server does so.

`Forwarding.passed_on` wraps a source, and `action` an action. Each call looks where the device is at that moment
(`fastflight.app.routes`): on this server the wrapped function serves it, else it goes to the owner as the same request,
over Flight (`fastflight.app.forwarded`). A device that is being moved is waited for.

The owner sees the identity of the cluster and not that of the caller: this server has already decided what the caller
may do, with the same token file (docs/decisions/0073).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from fastflight.access.action import Action, Body, Result
from fastflight.app.forwarded import Forwarded, estimate_of
from fastflight.app.routes import Owners, Routes
from fastflight.client.answers import DEFAULT_TIMEOUT
from fastflight.client.connection import REUSE
from fastflight.client.credentials import NONE, Credentials
from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.service import Catalog, SourceFunctions, decode
from fastflight.service.requests import FleetFile, Request
from fastflight.service.source import Estimate, Part, Parts

# Servers that are asked at the same time for their part of a listing, and how long each may take.
MAX_IN_PARALLEL = 16
LISTING_SECONDS = 5.0
# The listing of another server's device is used for the sources of one list_flights call, which run one after another.
FRESH_SECONDS = 2.0


class Forwarding:
    """Serves requests from `inventory`, or passes them on to the servers that `owners` names."""

    def __init__(self, inventory: Inventory, owners: Owners, catalog: Catalog, credentials: Credentials = NONE) -> None:
        self.routes = Routes(inventory, owners, credentials)
        self._owners = owners
        self._catalog = catalog
        self._listed: dict[str, tuple[float, list[tuple[Any, Estimate]]]] = {}

    def passed_on(self, source: SourceFunctions[Any]) -> SourceFunctions[Any]:
        """Return `source` for the devices of all servers."""
        forwarded = Forwarded(self.routes, source, self._listing)
        if source.request is FleetFile:
            return replace(source, parts=partial(self._located, source.parts))
        return replace(
            source,
            read=source.read and forwarded.read,
            aread=source.aread and forwarded.aread,
            write=None,
            awrite=source.awrite and forwarded.awrite,
            exchange=None,
            aexchange=source.aexchange and forwarded.aexchange,
            describe=source.describe and forwarded.describe,
            requests=source.requests and forwarded.requests,
            parts=partial(self._located, source.parts),
        )

    def action(self, action: Action) -> Action:
        """Return `action` for the devices of all servers, if its body names one."""
        if "device" not in action.body.model_fields:
            return action

        def run(body: Body) -> Iterable[Result]:
            device = getattr(body, "device", "")
            connection = self.routes.route(device) if device else None
            if connection is None:
                return action.run(body)
            timeout = DEFAULT_TIMEOUT + float(getattr(body, "timeout", 0))
            sent = body.model_dump_json(exclude_unset=True).encode()
            return connection.results(action.name, sent, timeout)

        return replace(action, run=run)

    def everywhere(self, action: str, local: Callable[[], Iterable[Result]], body: bytes = b"{}") -> Iterator[Result]:
        """Yield the results of `local`, and those of `action` with `body` on all other servers that answer."""

        def ask(location: str) -> list[Any]:
            try:
                return self.routes.connection(location).results(action, body, LISTING_SECONDS)
            except FastFlightError:
                return []

        yield from local()
        if others := self._owners.others():
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for results in pool.map(ask, others):
                    yield from results

    def _listing(self, devices: list[str]) -> Iterator[tuple[Any, Estimate]]:
        """Yield the flights of devices of other servers. Servers without answer are left out."""
        now = time.monotonic()
        stale = [name for name in devices if now - self._listed.get(name, (0.0, []))[0] > FRESH_SECONDS]
        if stale:
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for name, flights in zip(stale, pool.map(self._flights, stale), strict=True):
                    self._listed[name] = time.monotonic(), flights
        for name in devices:
            yield from self._listed[name][1]

    def _flights(self, device: str) -> list[tuple[Any, Estimate]]:
        location = self._owners.location(device)
        if not location:
            return []
        try:
            found = self.routes.connection(location).flights(f"{device}/*".encode())
        except FastFlightError:
            return []
        tickets = [(info.endpoints[0].ticket.ticket, info) for info in found if info.endpoints]
        return [(decode(ticket, self._catalog), estimate_of(info)) for ticket, info in tickets]

    def _located(
        self, divide: Callable[[Any, Estimate], Parts[Any]] | None, request: Request, known: Estimate
    ) -> Parts[Any]:
        """Return the parts of a request, each with the servers that can serve it: the owner first."""
        parts = Parts([Part(request)]) if divide is None else divide(request, known)

        def locations(part: Request) -> list[str]:
            # The part of a fleet that is one device has its name as the glob.
            device = part.devices if isinstance(part, FleetFile) else part.belongs_to
            # Last this server again: some clients reach it alone, or may send their token to no other host.
            if device is None or device not in self._owners.names():
                return []
            return [*self._owners.locations(device), REUSE]

        return replace(parts, parts=[Part(part.request, locations(part.request)) for part in parts.parts])
