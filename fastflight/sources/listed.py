"""A short-lived cache of listed flights, so that list_flights asks each device for its files only once.

list_flights calls its sources one after another. `device.file` lists the devices with `refresh`; `fleet.file` needs the
same lists a moment later and takes them from `recent`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fastflight.service.source import Estimate, Takes

# A request about one device, and the estimate of its answer.
Flight = tuple[Any, Estimate]

# Long enough for one list_flights call, whose sources run one after another.
FRESH_SECONDS = 5.0


class ListingCache:
    """Caches listed flights per device, because callers may see different sets of devices."""

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        list_flights: Callable[[Takes], Iterator[Flight]],
    ) -> None:
        """`names` returns all devices; `list_flights` lists the flights of the devices that its filter accepts."""
        self._names = names
        self._list_flights = list_flights
        self._last: dict[str, tuple[float, list[Flight]]] = {}

    def refresh(self, takes: Takes) -> Iterator[Flight]:
        """List the devices that `takes` accepts. The result is cached once the iterator has been used up."""
        found: dict[str, list[Flight]] = {name: [] for name in self._names() if takes(name)}
        for flight in self._list_flights(found.__contains__):
            if (flights := found.get(flight[0].belongs_to)) is not None:
                flights.append(flight)
                yield flight
        at = time.monotonic()
        for name, flights in found.items():
            self._last[name] = at, flights

    def recent(self, takes: Takes) -> Iterator[Flight]:
        """Yield the flights of accepted devices, listing again those whose entry is older than `FRESH_SECONDS`."""
        oldest = time.monotonic() - FRESH_SECONDS
        names = [name for name in self._names() if takes(name)]
        fresh = {name: entry for name in names if (entry := self._last.get(name)) is not None and entry[0] >= oldest}
        for _, flights in fresh.values():
            yield from flights
        if missing := set(names) - fresh.keys():
            yield from list(self.refresh(missing.__contains__))
