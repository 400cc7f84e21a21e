"""Clients that come and go: each makes a visit, rests a little, and makes the next one.

With tides, most of them stay away for half of the time, all at once, as people do at night.
"""

from __future__ import annotations

import random
import time
import urllib.error
from collections import Counter
from dataclasses import dataclass, field

from tests.campaigns import engine
from tests.campaigns.soaking.visits import VISITS, Counted, Place

REST_SECONDS = (0.1, 2.0)
# From one tide to the next, and one of how many clients comes at all times.
TIDE_SECONDS = 180.0
STAYING = 4


@dataclass(slots=True)
class VisitOutcome:
    """All visits, and the rows that they read, by kind. `errors` are those with a code, `untyped` texts of others."""

    visits: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    counted: Counted = field(default_factory=Counted)
    errors: Counter[str] = field(default_factory=Counter)
    untyped: list[str] = field(default_factory=list)

    def add(self, client: Client) -> None:
        """Add what a client has found that has left."""
        self.visits += client.visits
        self.rows += client.rows
        self.counted += client.counted
        self.errors += client.ended
        del self.errors["whole"], self.errors[""]
        self.untyped += client.flaws


class Client(engine.Worker):
    """Visits `place`."""

    def __init__(self, place: Place, number: int, seed: int, *, tides: bool = False) -> None:
        super().__init__(f"soak-{number}", self._come, lambda: self._chance.uniform(*REST_SECONDS))
        self._place, self._number, self._tides = place, number, tides
        self._chance = random.Random(seed * 1000 + number)
        self.visits, self.rows, self.counted = Counter[str](), Counter[str](), Counted()

    def _come(self) -> None:
        if not self._tides or comes(self._number, time.monotonic()):
            self.visit(self._chance.choice(list(VISITS)))

    def visit(self, kind: str) -> None:
        """Make one visit, and count its rows."""
        self.visits[kind] += 1
        try:
            counted = VISITS[kind](self._place, self._chance, self.name)
        except Exception as error:
            error.add_note(f"during a visit: {kind}")
            raise
        self.rows[kind] += counted.read
        self.counted += counted
        if counted.wrong:
            self.flaws.append(f"{kind}: {counted.wrong} wrong rows")

    def accepts(self, error: Exception) -> str:
        if isinstance(error, urllib.error.HTTPError):
            with error:
                return f"http {error.code}" if error.code != 500 else ""
        return super().accepts(error)


def comes(number: int, now: float) -> bool:
    """Return whether a client comes at this time, with tides: in their second half only some do."""
    return number % STAYING == 0 or now % TIDE_SECONDS < TIDE_SECONDS / 2
