"""Errors as Flight errors."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight import errors
from fastflight.errors import (
    BusyError,
    DeviceException,
    FastFlightError,
    FileMissing,
    QueryLimit,
    RequestError,
    ResourceExhausted,
    SequenceConflict,
    TransportTimeout,
)
from fastflight.runtime.failure import error_json
from fastflight.server.status import MAX_EXTRA_INFO_BYTES, MAX_TEXT_BYTES, MappedErrors, flight_error


def every_error() -> list[type[FastFlightError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FastFlightError)]
    # These take more than a text.
    special = (FastFlightError, DeviceException, SequenceConflict, ResourceExhausted, QueryLimit)
    return [kind for kind in found if kind not in special]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_typed_error_keeps_its_text(kind: type[FastFlightError]) -> None:
    mapped_error = flight_error(kind("it broke", where="demo", hint="Mend it"))
    assert "demo: it broke. Mend it" in str(mapped_error)
    assert "internal error" not in str(mapped_error)


def test_the_types_name_says_which_error_it_was_where_there_is_no_extra_info() -> None:
    assert type(flight_error(FileMissing("gone"))).__name__ == "FileMissing"
    assert isinstance(flight_error(FileMissing("gone")), pa.ArrowKeyError)
    assert isinstance(flight_error(RequestError("no")), pa.ArrowInvalid)
    assert isinstance(flight_error(BusyError("in use")), flight.FlightUnavailableError)
    assert isinstance(flight_error(TransportTimeout("silent")), flight.FlightTimedOutError)


def test_what_is_mapped_already_stays() -> None:
    error = flight_error(RequestError("no"))
    assert flight_error(error) is error


def test_a_long_error_fits_a_trailer() -> None:
    error = DeviceException("é" * 50_000, kind="ValueError", traceback="y" * 50_000, where="demo")
    data = error_json(error, MAX_EXTRA_INFO_BYTES)
    assert len(data) <= MAX_EXTRA_INFO_BYTES
    assert "ééé..." in str(flight_error(error))[: MAX_TEXT_BYTES + 10]
    content = json.loads(data)
    assert content["kind"] == "ValueError"
    assert content["traceback"].endswith("y")


def test_raising_a_mapped_error_keeps_no_chain() -> None:
    with pytest.raises(flight.FlightInternalError) as raised, MappedErrors():
        raise KeyError("secret")
    assert "secret" not in str(raised.value)
    assert raised.value.__suppress_context__
