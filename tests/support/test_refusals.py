"""A refusal is compared by its class and attributes, whether it is ours or came by Flight."""

from __future__ import annotations

import pyarrow.flight as flight
import pytest

from fastflight.errors import BusyError, ResourceExhausted, TransportError
from fastflight.server.status import flight_error
from tests.support.refusals import refused


def fail(error: Exception) -> None:
    raise error


def test_our_own_errors() -> None:
    full = ResourceExhausted("full", scope="device", limit=2, retry_after_seconds=1, where="demo")
    with refused(BusyError, scope="device", limit=2, where="demo") as raised:
        fail(full)
    assert raised.value is full
    with pytest.raises(AssertionError, match="scope"), refused(BusyError, scope="server"):
        fail(full)


def test_errors_of_flight() -> None:
    with refused(flight.FlightUnavailableError, code="busy", holder="a bridge", where="demo"):
        fail(flight_error(BusyError("in use", holder="a bridge", where="demo")))
    with pytest.raises(AssertionError, match="code"), refused(flight.FlightUnavailableError, code="busy"):
        fail(flight_error(TransportError("gone")))
