"""get_flight_info and get_schema: describes flights, and caches descriptions for as long as their source allows.

With each description a source says for how many seconds it stays true (`Estimate.keep_seconds`; 0 means that the source
must be asked each time). Only small descriptions are cached. The key is the bytes of the descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow.flight as flight

from fastflight.server import listing
from fastflight.service import Catalog
from fastflight.service.requests import Request
from fastflight.service.resolve import ExpiringCache, RequestResolver, ResolvedRequest
from fastflight.service.source import Estimate

# The two kinds of descriptions that Flight has.
D = TypeVar("D", flight.FlightInfo, flight.SchemaResult)

# Takes a device's name or None, and returns a context in which the call on the device is admitted.
Admit = Callable[[str | None], AbstractContextManager[None]]
# Returns the request reduced to what the caller may have. Raises if the caller may not make it.
Restrict = Callable[[ResolvedRequest], ResolvedRequest]

# How many descriptions of each kind are cached.
MAX_KEPT = 512
# A description is a schema and a few endpoints: some kilobytes. A description with a thousand endpoints, or with a
# descriptor of a quarter of a megabyte of blanks, is made each time.
MAX_KEPT_DESCRIPTION_BYTES = 64 * 1024


class Descriptions:
    """Answers get_flight_info and get_schema, and caches the answers."""

    def __init__(self, catalog: Catalog, resolver: RequestResolver) -> None:
        self._catalog = catalog
        self._resolver = resolver
        self._infos: ExpiringCache[flight.FlightInfo] = ExpiringCache(MAX_KEPT)
        self._schemas: ExpiringCache[flight.SchemaResult] = ExpiringCache(MAX_KEPT)

    def info(self, descriptor: flight.FlightDescriptor, admit: Admit, restrict: Restrict | None) -> flight.FlightInfo:
        """Return the flight that `descriptor` means. If the source must be asked, that happens inside `admit`.

        `restrict` is None for a caller without restrictions. Else it is called before anything is returned.
        """

        def describe(request: Request, known: Estimate) -> flight.FlightInfo:
            return listing.info(request, known, self._catalog, descriptor)

        return self._cached(self._infos, describe, descriptor, admit, restrict)

    def schema(
        self, descriptor: flight.FlightDescriptor, admit: Admit, restrict: Restrict | None
    ) -> flight.SchemaResult:
        """Return the schema of the flight that `descriptor` means; arguments as for `info`."""

        def describe(request: Request, known: Estimate) -> flight.SchemaResult:
            return flight.SchemaResult(listing.schema(request, known))

        return self._cached(self._schemas, describe, descriptor, admit, restrict)

    def _cached(
        self,
        cache: ExpiringCache[D],
        describe: Callable[[Request, Estimate], D],
        descriptor: flight.FlightDescriptor,
        admit: Admit,
        restrict: Restrict | None,
    ) -> D:
        key = _key(descriptor)
        resolved = None if restrict is None else restrict(listing.resolve(descriptor, self._resolver))
        narrowed = resolved is not None and resolved.narrowed
        description = None if narrowed else cache.get(key)
        if description is None:
            resolved = resolved or listing.resolve(descriptor, self._resolver)
            with admit(resolved.device):
                known = listing.estimate(resolved.request, self._catalog)
            description = describe(resolved.request, known)
            if not narrowed and _is_small(descriptor, description, known):
                cache.put(key, description, known.keep_seconds)
        return description


def _is_small(
    descriptor: flight.FlightDescriptor, description: flight.FlightInfo | flight.SchemaResult, known: Estimate
) -> bool:
    """Whether the description and its descriptor are small enough to cache.

    If the source forbids caching, the size does not matter: return True without measuring it.
    """
    if not known.keep_seconds:
        return True
    return len(descriptor.serialize()) + len(description.serialize()) <= MAX_KEPT_DESCRIPTION_BYTES


def _key(descriptor: flight.FlightDescriptor) -> Hashable:
    command: bytes | None = descriptor.command
    return tuple(descriptor.path or ()) if command is None else command
