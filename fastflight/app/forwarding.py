"""Passes requests for devices of other servers on to their owners: the one place where a cluster's server does so.

`Forwarding.passed_on` wraps a source, and `action` an action. Each call looks where the device is at that moment
(`fastflight.app.routes`): on this server the wrapped function serves it, else it goes to the owner as the same request,
over Flight (`fastflight.app.forwarded`). A device that is being moved is waited for.

The owner sees the identity of the cluster and not that of the caller: this server has already decided what the caller
may do, with the same token file (docs/decisions/0072).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fastflight.access.action import Action, Body, Result
from fastflight.app.forwarded import Forwarded, Located, estimate_of
from fastflight.app.routes import UNOWNED, Routes
from fastflight.client.answers import DEFAULT_TIMEOUT
from fastflight.client.connection import REUSE
from fastflight.client.credentials import NONE, Credentials
from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.service import Catalog, DataSource, decode
from fastflight.service.requests import DeviceListing, FleetFile, Request
from fastflight.service.source import Estimate
from fastflight.sources.board_listings import TOTAL_SECONDS as LISTING_TOTAL_SECONDS
from fastflight.sources.device_listing import SCHEMA as LISTING_SCHEMA

if TYPE_CHECKING:
    from fastflight.app.cluster import ClusterMember

# Servers that are asked at the same time for their part of a listing, and how long each may take.
MAX_IN_PARALLEL = 16
LISTING_SECONDS = 5.0
# How long the listing of one device's flights may take: longer than its server takes at most for its files.
FLIGHTS_SECONDS = LISTING_TOTAL_SECONDS + LISTING_SECONDS
# The listing of another server's device is used for the sources of one list_flights call, which run one after another.
FRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A server of the cluster that gave no answer: its name, its address, and why. `str` is the sentence for users."""

    name: str
    location: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} gives no answer at {self.location}: {self.why}"


class Forwarding:
    """Serves requests from `inventory`, or passes them on to the servers that `owners` names."""

    def __init__(
        self, inventory: Inventory, owners: ClusterMember, catalog: Catalog, credentials: Credentials = NONE
    ) -> None:
        self.routes = Routes(inventory, owners, credentials)
        self._owners = owners
        self._catalog = catalog
        self._listed: dict[str, tuple[float, list[tuple[Any, Estimate]]]] = {}

    def passed_on(self, source: DataSource[Any]) -> DataSource[Any]:
        """Return `source` for the devices of all servers."""
        if source.request is FleetFile:
            return Located(source, self._locations)
        return Forwarded(self.routes, source, self._locations, self._listing)

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

    def everywhere(self, action: str, body: bytes = b"{}") -> tuple[list[Result], list[Unanswered]]:
        """Return the results of `action` with `body` on all other servers, and the servers that gave no answer."""

        def ask(server: tuple[str, str]) -> list[Result] | Unanswered:
            name, location = server
            try:
                return self.routes.connection(location).results(action, body, LISTING_SECONDS)
            except FastFlightError as error:
                return Unanswered(name, location, error.what)

        results: list[Result] = []
        unanswered: list[Unanswered] = []
        if others := self._owners.others():
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for answer in pool.map(ask, others.items()):
                    if isinstance(answer, Unanswered):
                        unanswered.append(answer)
                    else:
                        results += answer
        return results, unanswered

    def _listing(self, devices: list[str]) -> Iterator[tuple[Any, Estimate]]:
        """Yield the flights of devices of other servers.

        A device whose server gives no answer, or that has no owner, is listed as one that cannot be reached on this
        server is: its `device.listing` alone, with the note `trouble`.
        """
        now = time.monotonic()
        stale = [name for name in devices if now - self._listed.get(name, (0.0, []))[0] > FRESH_SECONDS]
        if stale:
            failed: dict[str, str] = {}
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for name, flights in zip(stale, pool.map(partial(self._flights, failed), stale), strict=True):
                    self._listed[name] = time.monotonic(), flights
        for name in devices:
            yield from self._listed[name][1]

    def _flights(self, failed: dict[str, str], device: str) -> list[tuple[Any, Estimate]]:
        """Return the flights of a device. `failed` has the addresses that gave no answer in this listing, and why."""
        location = self._owners.location(device)
        if not location:
            return _unreachable(device, self._owners.why_gone(device) or UNOWNED)
        if location not in failed:  # many devices have the same server, whose silence is waited for once
            try:
                found = self.routes.connection(location).flights(f"{device}/*".encode(), FLIGHTS_SECONDS)
            except FastFlightError as error:
                server = next((name for name, each in self._owners.others().items() if each == location), "its server")
                failed[location] = str(Unanswered(server, location, error.what))
            else:
                tickets = [(info.endpoints[0].ticket.ticket, info) for info in found if info.endpoints]
                return [(decode(ticket, self._catalog), estimate_of(info)) for ticket, info in tickets]
        return _unreachable(device, failed[location])

    def _locations(self, request: Request) -> list[str]:
        """Return the servers that can serve a request: the owner first."""
        # The part of a fleet that is one device has its name as the glob.
        device = request.devices if isinstance(request, FleetFile) else request.belongs_to
        # Last this server again: some clients reach it alone, or may send their token to no other host.
        if device is None or not self._owners.has(device):
            return []
        return [*self._owners.locations(device), REUSE]


def _unreachable(device: str, trouble: str) -> list[tuple[Any, Estimate]]:
    return [(DeviceListing(device=device), Estimate(LISTING_SCHEMA, note={"trouble": trouble}))]
