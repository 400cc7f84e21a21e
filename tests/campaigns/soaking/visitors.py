"""Clients that come and go. Each is a thread that makes a visit, rests a little, and makes the next one.

With tides, most of them stay away for half of the time, all at once, as people do at night.
"""

from __future__ import annotations

import random
import threading
import time
import urllib.error
from collections import Counter
from dataclasses import dataclass, field

from fastflight.errors import FastFlightError
from tests.campaigns.soaking.visits import VISITS, Counted, Place

REST_SECONDS = (0.1, 2.0)
# From one tide to the next, and one of how many clients comes at all times.
TIDE_SECONDS = 180.0
STAYING = 4
# One that was not foreseen.
INTERNAL = FastFlightError.code
# No visit takes as long as this to end.
LEAVE_SECONDS = 180.0
# What is shown of what should not be.
MAX_SHOWN = 20


@dataclass(slots=True)
class VisitOutcome:
    """All visits, and the rows that they read, by kind. `errors` are those with a code, `untyped` texts of others."""

    visits: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    counted: Counted = field(default_factory=Counted)
    errors: Counter[str] = field(default_factory=Counter)
    untyped: list[str] = field(default_factory=list)


class Coming:
    """Clients of `place`, which come and go from `start` to `stop`."""

    def __init__(self, place: Place, clients: int, seed: int, *, tides: bool = False) -> None:
        self.outcome = VisitOutcome()
        self._place = place
        self._tides = tides
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            # One that hangs is told of by `stop`, and can only be left behind.
            threading.Thread(
                target=self._come_and_go,
                args=(number, random.Random(seed * 1000 + number)),
                name=f"client-{number}",
                daemon=True,
            )
            for number in range(clients)
        ]

    def start(self) -> None:
        """Start the clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the clients, and wait for the last one. One that does not end is a defect."""
        self._over.set()
        deadline = time.monotonic() + LEAVE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hang = [thread.name for thread in self._threads if thread.is_alive()]
        with self._lock:
            self.outcome.untyped += [f"{name}: does not end" for name in hang]

    def _come_and_go(self, number: int, chance: random.Random) -> None:
        while not self._over.wait(chance.uniform(*REST_SECONDS)):
            if not self._tides or comes(number, time.monotonic()):
                self.visit(chance.choice(list(VISITS)), chance, f"soak-{number}")

    def visit(self, kind: str, chance: random.Random, own: str) -> None:
        """Make one visit, and count its result."""
        code, untyped, counted = "", "", Counted()
        try:
            counted = VISITS[kind](self._place, chance, own)
        except FastFlightError as error:
            code, untyped = error.code, f"{kind}: {error}" if error.code == INTERNAL else ""
        except urllib.error.HTTPError as error:
            with error:
                code, untyped = f"http {error.code}", f"{kind}: {error}" if error.code == 500 else ""
        except Exception as error:  # a client that ended with it would be missed by nobody
            untyped = f"{kind}: {type(error).__name__}: {error}"
        with self._lock:
            self.outcome.visits[kind] += 1
            self.outcome.rows[kind] += counted.read
            for name in ("read", "written", "wrong", "told_missing"):
                total = self.outcome.counted
                setattr(total, name, getattr(total, name) + getattr(counted, name))
            if counted.wrong:
                self.outcome.untyped.append(f"{kind}: {counted.wrong} wrong rows")
            if code:
                self.outcome.errors[code] += 1
            if untyped and len(self.outcome.untyped) < MAX_SHOWN:
                self.outcome.untyped.append(untyped)


def comes(number: int, now: float) -> bool:
    """Return whether a client comes at this time, with tides: in their second half only some do."""
    return number % STAYING == 0 or now % TIDE_SECONDS < TIDE_SECONDS / 2
