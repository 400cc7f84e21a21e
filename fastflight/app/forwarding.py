"""Passes requests for devices of other servers on to their owners: the one place where a cluster's server does so.

`Forwarding.passed_on` wraps a source, and `action` an action. Each call looks where the device is at that moment
(`fastflight.app.routes`): on this server the wrapped function serves it, else it goes to the owner as the same request,
over Flight (`fastflight.app.forwarded`). A device that is being moved is waited for.

The owner sees the identity of the cluster and not that of the caller: this server has already decided what the caller
may do, with the same token file (docs/decisions/0072).
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fastflight.access.action import Action, Body, Result
from fastflight.app.forwarded import Forwarded, ForwardedFiles, Located
from fastflight.app.routes import UNOWNED, Routes
from fastflight.client.answers import DEFAULT_TIMEOUT
from fastflight.client.connection import REUSE
from fastflight.client.credentials import NONE, Credentials
from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.service import Catalog, DataSource, encode
from fastflight.service.requests import DeviceListing, FleetFile, Request
from fastflight.service.resolve import plain
from fastflight.service.source import Estimate
from fastflight.service.wire import make_request
from fastflight.sources.board_listings import TOTAL_SECONDS as LISTING_TOTAL_SECONDS
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.device_listing import SCHEMA as LISTING_SCHEMA

if TYPE_CHECKING:
    from fastflight.app.cluster import ClusterMember

A = TypeVar("A")
T = TypeVar("T")

# Servers that are asked at the same time for their part of a listing, and how long each may take.
MAX_IN_PARALLEL = 16
LISTING_SECONDS = 5.0
# The action by which servers ask each other for the flights of their own devices, and for how many devices at a time.
OWN_FLIGHTS = "cluster.flights"
MAX_ASKED = 1000
# How long a listing of flights may take: longer than a server takes at most for the files of its devices.
FLIGHTS_SECONDS = LISTING_TOTAL_SECONDS + LISTING_SECONDS
# The listing of another server's device is used for the sources of one list_flights call, which run one after another:
# for so long, or this many times as long as it took. Reading the answers takes about as long as waiting for them.
FRESH_SECONDS, FRESH_TIMES = 2.0, 4.0


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A server of the cluster that gave no answer: its name, its address, and why. `str` is the sentence for users."""

    name: str
    location: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} gives no answer at {self.location}: {self.why}"


class FlightsBody(Body):
    """The devices whose flights to list."""

    devices: list[str]


class Forwarding:
    """Serves requests from `inventory`, or passes them on to the servers that `owners` names."""

    def __init__(
        self, inventory: Inventory, owners: ClusterMember, catalog: Catalog, credentials: Credentials = NONE
    ) -> None:
        self.routes = Routes(inventory, owners, credentials)
        self._owners = owners
        self._catalog = catalog
        # The flights of other servers' devices, each with the time until which they are used.
        self._listed: dict[str, tuple[float, list[tuple[Any, Estimate]]]] = {}
        # The sources of this server's own devices.
        self._sources: list[DataSource[Any]] = []

    def passed_on(self, source: DataSource[Any]) -> DataSource[Any]:
        """Return `source` for the devices of all servers."""
        if source.request is FleetFile:
            return Located(source, self._locations)
        self._sources.append(source)
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

    def files(self, local: DeviceFiles) -> DeviceFiles:
        """Return the whole files of the devices of all servers, in the cache of `local`."""
        return ForwardedFiles(self.routes, local)

    def everywhere(self, action: str, body: bytes = b"{}") -> tuple[list[Result], list[Unanswered]]:
        """Return the results of `action` with `body` on all other servers, and the servers that gave no answer."""
        return self.asked(action, body)()

    def asked(self, action: str, body: bytes = b"{}") -> Callable[[], tuple[list[Result], list[Unanswered]]]:
        """Begin `everywhere`, and return the function that waits for the answers."""
        others = self._owners.others().items()
        coming = _in_parallel(lambda each: self._ask(*each, action, body, LISTING_SECONDS), others)

        def answers() -> tuple[list[Result], list[Unanswered]]:
            found = [*coming]
            results = [result for answer in found if not isinstance(answer, Unanswered) for result in answer]
            return results, [answer for answer in found if isinstance(answer, Unanswered)]

        return answers

    def _ask(self, name: str, location: str, action: str, body: bytes, seconds: float) -> list[Result] | Unanswered:
        try:
            return self.routes.connection(location).results(action, body, seconds)
        except FastFlightError as error:
            return Unanswered(name, location, error.what)

    def own_flights(self, body: FlightsBody) -> Iterator[Result]:
        """Yield the flights of devices that this server owns."""
        wanted = frozenset(body.devices)
        for source in self._sources:
            for request, known in source.requests(wanted.__contains__):
                schema = None if known.schema is None else b64encode(plain(known.schema).serialize()).decode()
                known_json = {"schema": schema, "rows": known.rows, "bytes": known.bytes, "note": known.note}
                yield {"request": json.loads(encode(request)), **known_json}

    def _listing(self, devices: list[str]) -> Callable[[], Iterator[tuple[Any, Estimate]]]:
        """Ask the other servers for the flights of their devices. Return the function that waits for them.

        A device whose server gives no answer, or that has no owner, is listed as one that cannot be reached on this
        server is: its `device.listing` alone, with the note `trouble`.
        """
        now = time.monotonic()
        by_server: dict[str | None, list[str]] = {}
        for name in devices:
            if now > self._listed.get(name, (0.0, []))[0]:
                by_server.setdefault(self._owners.location(name), []).append(name)
        asked = [
            (location, names[start : start + MAX_ASKED])
            for location, names in by_server.items()
            for start in range(0, len(names), MAX_ASKED)
        ]
        answers = _in_parallel(lambda each: self._flights(*each), asked)

        def flights() -> Iterator[tuple[Any, Estimate]]:
            for found in answers:
                listed = time.monotonic()
                until = listed + max(FRESH_SECONDS, FRESH_TIMES * (listed - now))
                self._listed.update((name, (until, flights)) for name, flights in found.items())
            for name in devices:
                yield from self._listed[name][1]

        return flights

    def _flights(self, location: str | None, devices: list[str]) -> dict[str, list[tuple[Any, Estimate]]]:
        """Return the flights of devices whose owner is at `location`."""
        if not location:
            return {name: _unreachable(name, self._owners.why_gone(name) or UNOWNED) for name in devices}
        body = FlightsBody(devices=devices).model_dump_json().encode()
        server = self._owners.owner(devices[0]) or "its server"
        results = self._ask(server, location, OWN_FLIGHTS, body, FLIGHTS_SECONDS)
        if isinstance(results, Unanswered):
            return {name: _unreachable(name, str(results)) for name in devices}
        found: dict[str, list[tuple[Any, Estimate]]] = {name: [] for name in devices}
        for each in results:
            request: Any = make_request(each["request"], self._catalog)
            found[request.device].append((request, _estimate(each)))
        # One that is moving is not at its last owner any more.
        return {name: flights or _unreachable(name, UNOWNED) for name, flights in found.items()}

    def _locations(self, request: Request) -> list[str]:
        """Return the servers that can serve a request: the owner first."""
        # The part of a fleet that is one device has its name as the glob.
        device = request.devices if isinstance(request, FleetFile) else request.belongs_to
        # Last this server again: some clients reach it alone, or may send their token to no other host.
        locations = [] if device is None else self._owners.locations(device)
        return [*locations, REUSE] if locations else []


def _in_parallel(ask: Callable[[A], T], each: Iterable[A]) -> Iterator[T]:
    """Begin to ask, and return an iterator over the answers."""
    pool = ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing")
    answers = pool.map(ask, each)
    pool.shutdown(wait=False)
    return answers


def _estimate(result: Result) -> Estimate:
    schema = None if result["schema"] is None else _schema(result["schema"])
    return Estimate(schema, result["rows"], result["bytes"], note=result["note"])


# Most flights of thousands of devices have one of two schemas.
@lru_cache(16)
def _schema(encoded: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(encoded)))


def _unreachable(device: str, trouble: str) -> list[tuple[Any, Estimate]]:
    return [(DeviceListing(device=device), Estimate(LISTING_SCHEMA, note={"trouble": trouble}))]
