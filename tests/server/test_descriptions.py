"""Descriptions are cached for as long as their source says, and refused while the server drains."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.server.descriptions import MAX_KEPT_DESCRIPTION_BYTES
from fastflight.service import DataSource
from fastflight.service.source import Estimate, Reading
from tests.support.function_source import FunctionSource

from .conftest import SCHEMA, Trial, TrialServer, trial_server


def test_a_draining_server_describes_nothing(running: TrialServer) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"type": "mock", "total_rows": 5}')
    running.client.get_flight_info(descriptor)
    running.client.get_schema(descriptor)
    running.server._registry.drain()
    for call in (running.client.get_flight_info, running.client.get_schema):
        with pytest.raises((flight.FlightUnavailableError, pa.ArrowException), match="the server shuts down"):
            call(descriptor)


class Described:
    """A source that counts how often it is described."""

    def __init__(self, keep_seconds: float) -> None:
        self.keep_seconds = keep_seconds
        self.times = 0

    def source(self) -> DataSource[Trial]:
        return FunctionSource(Trial, read=lambda request: Reading(SCHEMA, iter([])), describe=self.describe)

    def describe(self, request: Trial) -> Estimate:
        self.times += 1
        return Estimate(SCHEMA, rows=self.times, keep_seconds=self.keep_seconds)


@pytest.mark.parametrize(("keep_seconds", "times"), [(0.0, [1, 2]), (math.inf, [1, 1])])
def test_a_description_is_given_again_for_as_long_as_its_source_says(keep_seconds: float, times: list[int]) -> None:
    described = Described(keep_seconds)
    with trial_server(trial=described.source()) as running:
        descriptor = flight.FlightDescriptor.for_command(b'{"type": "trial"}')
        assert [running.client.get_flight_info(descriptor).total_records for _ in range(2)] == times
        before = described.times
        for _ in range(2):
            assert running.client.get_schema(descriptor).schema == SCHEMA
        assert described.times == before + (1 if keep_seconds else 2)
        other = flight.FlightDescriptor.for_command(b'{"type": "trial", "rows": 7}')
        assert running.client.get_flight_info(other).descriptor == other


def test_a_description_that_is_large_or_asked_for_at_length_is_made_each_time() -> None:
    described = Described(math.inf)
    with trial_server(trial=described.source()) as running:
        for call in (running.client.get_flight_info, running.client.get_schema):
            for blanks, again in ((1000, 0), (MAX_KEPT_DESCRIPTION_BYTES, 1)):
                command = b'{"type": "trial"}' + b" " * blanks
                call(flight.FlightDescriptor.for_command(command))
                before = described.times
                call(flight.FlightDescriptor.for_command(command))
                assert described.times == before + again
        many = b'{"type": "mock", "total_rows": 1000, "rows_per_batch": 1, "endpoints": 1000}'
        assert len(running.client.get_flight_info(flight.FlightDescriptor.for_command(many)).endpoints) == 1000
        assert many not in running.server._descriptions._infos._values
