"""Answers that are given again: equal to those that were made, and counted like them."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.server.kept import MAX_KEPT_ANSWER_BYTES, MAX_KEPT_DESCRIPTION_BYTES, _answer
from fastflight.service import Source
from fastflight.service.source import Estimate, Reading

from .conftest import SCHEMA, Running, Trial, serving


def ask(running: Running, **keys: object) -> tuple[pa.Schema, list[pa.RecordBatch], dict[str, Any]]:
    """An answer: its schema, its batches that have rows, and its trailer."""
    reader = running.client.do_get(flight.Ticket(json.dumps({"type": "mock", **keys})))
    batches, trailer = [], None
    for chunk in reader:
        assert trailer is None, "the trailer is the last"
        if chunk.data.num_rows:
            batches.append(chunk.data)
        if chunk.app_metadata is not None:
            trailer = json.loads(chunk.app_metadata.to_pybytes())
    assert trailer is not None
    return reader.schema, batches, trailer


@pytest.mark.parametrize("rows", [0, 1, 10, 1000])
@pytest.mark.parametrize("variant", ["simple", "complex"])
def test_a_small_constant_table_is_the_same_again(running: Running, mode: str, rows: int, variant: str) -> None:
    keys = {"mode": mode, "variant": variant, "total_rows": rows, "rows_per_batch": 400}
    schema, batches, trailer = ask(running, **keys)
    assert "kept" not in trailer
    for _ in range(2):
        again_schema, again, told = ask(running, **keys)
        assert again_schema.equals(schema, check_metadata=True)
        assert again_schema.metadata[b"fastflight.path"] == mode.encode()
        assert again == batches
        assert told.pop("kept") is True
        assert told.pop("duration_seconds") >= 0
        assert told == {key: value for key, value in trailer.items() if key != "duration_seconds"}
    assert running.settled()
    stats = running.stats()["sources"]["mock"]
    assert (stats["started"], stats["finished"], stats["rows"]) == (3, 3, 3 * rows)
    assert stats["bytes"] == 3 * trailer["bytes"]


@pytest.mark.parametrize(
    "keys", [{"total_rows": 5000}, {"total_rows": 1000}, {"total_rows": 10, "delay_per_row": 1e-6}]
)
def test_what_is_large_or_has_a_pace_is_made_each_time(running: Running, keys: dict[str, float]) -> None:
    assert 1000 * 200 > MAX_KEPT_ANSWER_BYTES
    for _ in range(2):
        assert "kept" not in ask(running, **keys)[2]


def test_another_spelling_of_a_request_gets_the_same_answer(running: Running) -> None:
    ask(running, variant="simple", total_rows=5)
    assert ask(running, total_rows=5, variant="simple", mode="async")[2]["kept"]
    assert "kept" not in ask(running, total_rows=5, variant="simple", mode="sync")[2]


def test_an_answer_that_broke_off_is_not_kept(running: Running) -> None:
    reader = running.client.do_get(flight.Ticket(b'{"type": "mock", "total_rows": 10, "rows_per_batch": 1}'))
    reader.read_chunk()
    reader.cancel()
    assert running.settled()
    assert sum(batch.num_rows for batch in ask(running, total_rows=10, rows_per_batch=1)[1]) == 10


def test_a_draining_server_gives_nothing_again(running: Running) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"type": "mock", "total_rows": 5}')
    running.client.get_flight_info(descriptor)
    running.client.get_schema(descriptor)
    ask(running, total_rows=5)
    running.server._ledger.drain()
    for call in (running.client.get_flight_info, running.client.get_schema):
        with pytest.raises((flight.FlightUnavailableError, pa.ArrowException), match="the server shuts down"):
            call(descriptor)
    with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
        ask(running, total_rows=5)


class Described:
    """A source that counts how often it is described."""

    def __init__(self, keep_seconds: float) -> None:
        self.keep_seconds = keep_seconds
        self.times = 0

    def source(self) -> Source[Trial]:
        return Source(Trial, read=lambda request: Reading(SCHEMA, iter([])), describe=self.describe)

    def describe(self, request: Trial) -> Estimate:
        self.times += 1
        return Estimate(SCHEMA, rows=self.times, keep_seconds=self.keep_seconds)


@pytest.mark.parametrize(("keep_seconds", "times"), [(0.0, [1, 2]), (math.inf, [1, 1])])
def test_a_description_is_given_again_for_as_long_as_its_source_says(keep_seconds: float, times: list[int]) -> None:
    described = Described(keep_seconds)
    with serving(trial=described.source()) as running:
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
    with serving(trial=described.source()) as running:
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


def test_what_is_kept_has_the_very_schema_of_its_stream() -> None:
    plain, batches = pa.schema([("n", pa.int64())]), [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": []})]
    described = plain.with_metadata({"fastflight.path": "sync"})
    kept = _answer(described, [batches[0], batches[0], batches[1].cast(plain)], {"duration_seconds": 1.0})
    assert (len(kept.first), kept.rows, kept.size) == (1, 4, 32)
    for batch in (*kept.first, kept.last):
        assert batch.schema.equals(described, check_metadata=True)
