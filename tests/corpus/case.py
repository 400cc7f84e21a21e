"""A bad input and what becomes of it.

Each module of this folder that holds `CASES` is an entry point, its test beside it runs them, and `test_corpus` counts
them. A case is there for a reason, which its name says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from fastflight.errors import FastFlightError

# Nothing of these may be in a text that leaves for a peer: a traceback, a path of the host.
TELLTALE = re.compile(r'Traceback|File "|site-packages|/home/|/tmp/|/usr/|\.py\b', re.IGNORECASE)
# Nobody reads a longer text, and gRPC's trailers hold no longer one.
MAX_TEXT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Case:
    """`given` is bad: `error` is raised, of which `says` is a part; without one, `outcome` is what comes of it."""

    name: str
    given: Any
    error: type[FastFlightError] | None = None
    says: str = ""
    outcome: Any = None


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """The test runs once for each case."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])


def check(case: Case, run: Callable[[Any], Any]) -> None:
    """What comes of a case is what it says: exactly that class of error with that text, or that outcome."""
    try:
        outcome = run(case.given)
    except FastFlightError as error:
        assert case.error is not None, f"refused: {error!r}"
        assert type(error) is case.error, repr(error)
        assert case.says in str(error), str(error)
        discreet(str(error))
    else:
        assert case.error is None, f"taken: {outcome!r}"
        assert outcome == case.outcome, repr(outcome)[:2000]


def discreet(text: str) -> None:
    """`text` may go to a peer."""
    assert not (found := TELLTALE.search(text)), found
    assert len(text) <= MAX_TEXT_CHARACTERS, len(text)
