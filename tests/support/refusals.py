"""Refusals in tests: which error it is and what it carries, and not the words in which it says so.

    with refused(ResourceExhausted, scope="device", limit=2):
        admission.acquire("demo")
    with refused(flight.FlightUnavailableError, code="busy", holder="a bridge"):     # by a plain Flight client
        reader.read_all()

Words are for people: a test that checks what a person must be told uses `pytest.raises(..., match=...)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastflight.client.failure import typed
from fastflight.errors import FastFlightError


@contextmanager
def refused(kind: type[BaseException], /, **attributes: Any) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error of class `kind` whose attributes (`code`, `where`, `holder`, ...) are these.

    An error of Flight has the attributes of ours that it carries, as our own client reads it.
    """
    with pytest.raises(kind) as raised:
        yield raised
    error = raised.value if isinstance(raised.value, FastFlightError) else typed(raised.value, "a server")
    found = {name: getattr(error, name, None) for name in attributes}
    assert found == attributes, f"{error!r} has {found}, not {attributes}"
