"""get_flight_info and get_schema: descriptions of flights, cached for as long as their source says.

A source gives with each description how long it stays true (`Estimate.keep_seconds`; 0 means that it must be asked each
time). Only small descriptions are cached, by the bytes of their descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow.flight as flight

from fastflight.server import listing
from fastflight.service import Catalog
from fastflight.service.requests import Request
from fastflight.service.resolve import Kept, RequestResolver, ResolvedRequest
from fastflight.service.source import Estimate

# What Flight describes an answer by.
D = TypeVar("D", flight.FlightInfo, flight.SchemaResult)

# Admits a call on a device, for the length of the context.
Calling = Callable[[str | None], AbstractContextManager[None]]
# Returns the part of a request that the caller may have; raises the refusal.
Allowing = Callable[[ResolvedRequest], ResolvedRequest]

# Cached descriptions of each kind.
MAX_KEPT = 512
# A description is a schema and a few endpoints: some kilobytes. One of a thousand endpoints, or asked for in a quarter
# of a megabyte of blanks, is made each time.
MAX_KEPT_DESCRIPTION_BYTES = 64 * 1024


class Descriptions:
    """get_flight_info and get_schema, by the bytes of their descriptors."""

    def __init__(self, catalog: Catalog, asking: RequestResolver) -> None:
        self._catalog = catalog
        self._asking = asking
        self._infos: Kept[flight.FlightInfo] = Kept(MAX_KEPT)
        self._schemas: Kept[flight.SchemaResult] = Kept(MAX_KEPT)

    def info(self, descriptor: flight.FlightDescriptor, call: Calling, allow: Allowing | None) -> flight.FlightInfo:
        """The flight that `descriptor` means. A source that has to be asked is asked inside a `call`.

        `allow` is None for a caller without restrictions; else it is applied before anything about the flight is said.
        """

        def describe(request: Request, known: Estimate) -> flight.FlightInfo:
            return listing.info(request, known, self._catalog, descriptor)

        return self._described(self._infos, describe, descriptor, call, allow)

    def schema(self, descriptor: flight.FlightDescriptor, call: Calling, allow: Allowing | None) -> flight.SchemaResult:
        """The schema of the answer that `descriptor` means; arguments as for `info`."""

        def describe(request: Request, known: Estimate) -> flight.SchemaResult:
            return flight.SchemaResult(listing.schema(request, known))

        return self._described(self._schemas, describe, descriptor, call, allow)

    def _described(
        self,
        cached: Kept[D],
        describe: Callable[[Request, Estimate], D],
        descriptor: flight.FlightDescriptor,
        call: Calling,
        allow: Allowing | None,
    ) -> D:
        key = _key(descriptor)
        asked = None if allow is None else allow(listing.asked_of(descriptor, self._asking))
        narrowed = asked is not None and asked.narrowed
        found = None if narrowed else cached.get(key)
        if found is None:
            asked = asked or listing.asked_of(descriptor, self._asking)
            with call(asked.device):
                known = listing.estimate(asked.request, self._catalog)
            found = describe(asked.request, known)
            if not narrowed and _is_small(descriptor, found, known):
                cached.put(key, found, known.keep_seconds)
        return found


def _is_small(
    descriptor: flight.FlightDescriptor, described: flight.FlightInfo | flight.SchemaResult, known: Estimate
) -> bool:
    """Whether the description and its descriptor are small enough to cache, or need not be cached at all."""
    if not known.keep_seconds:
        return True
    return len(descriptor.serialize()) + len(described.serialize()) <= MAX_KEPT_DESCRIPTION_BYTES


def _key(descriptor: flight.FlightDescriptor) -> Hashable:
    command: bytes | None = descriptor.command
    return tuple(descriptor.path or ()) if command is None else command
