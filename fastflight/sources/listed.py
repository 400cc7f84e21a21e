"""What a source listed last, for another that would ask the same of the same devices a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastflight.service.source import Estimate, Takes

# A request about one device, and what is known of the answer.
Flight = tuple[Any, Estimate]

# One list_flights asks its sources one after another: what the first found of the devices is good for the next.
FRESH_SECONDS = 5.0


class Listed:
    """Listings that are remembered for a moment, device by device: who may see one of them may not see another."""

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        listing: Callable[[Takes], Iterator[Flight]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names`: the devices there are; `listing` asks those of them that it is to take."""
        self._names = names
        self._listing = listing
        self._clock = clock
        self._last: dict[str, tuple[float, list[Flight]]] = {}

    def now(self, takes: Takes) -> Iterator[Flight]:
        """List those devices, and remember it if it comes to its end."""
        found: dict[str, list[Flight]] = {name: [] for name in self._names() if takes(name)}
        for each in self._listing(found.__contains__):
            if (of_one := found.get(each[0].belongs_to)) is not None:
                of_one.append(each)
                yield each
        at = self._clock()
        for name, of_one in found.items():
            self._last[name] = at, of_one

    def lately(self, takes: Takes) -> Iterator[Flight]:
        """What was listed of those within `FRESH_SECONDS`, or else is now."""
        oldest = self._clock() - FRESH_SECONDS
        names = [name for name in self._names() if takes(name)]
        fresh = {name: kept for name in names if (kept := self._last.get(name)) is not None and kept[0] >= oldest}
        for _, of_one in fresh.values():
            yield from of_one
        if missing := set(names) - fresh.keys():
            yield from list(self.now(missing.__contains__))
