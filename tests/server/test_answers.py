"""do_get, as a plain pyarrow client sees it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.runtime import outgoing
from fastflight.runtime.outgoing import MAX_MESSAGE_BYTES

from .conftest import SOON, TrialServer, ticket


def read(reader: flight.FlightStreamReader) -> tuple[list[pa.RecordBatch], dict[str, Any]]:
    """The batches, and the trailer that the last one carries."""
    chunks = list(reader)
    assert all(chunk.app_metadata is None for chunk in chunks[:-1])
    return [chunk.data for chunk in chunks], json.loads(chunks[-1].app_metadata.to_pybytes())


def test_the_whole_table_and_what_is_said_about_it(running: TrialServer, mode: str) -> None:
    reader = running.client.do_get(ticket(type="mock", total_rows=25, rows_per_batch=10, mode=mode))
    metadata = reader.schema.metadata
    assert metadata[b"fastflight.path"] == mode.encode()
    assert json.loads(metadata[b"fastflight.request"])["total_rows"] == 25
    batches, trailer = read(reader)
    assert batches[-1].num_rows == 0
    numbers = [number for batch in batches for number in batch.column("col_1").to_pylist()]
    assert numbers == [*range(1, 11), *range(1, 11), *range(1, 6)]
    assert (trailer["rows"], trailer["bytes"]) == (25, 25 * 50 * 4)
    assert trailer["duration_seconds"] > 0
    assert running.settled()
    assert running.stats()["sources"]["mock"]["finished"] == 1


def test_the_trailer_of_a_single_batch_comes_with_it(running: TrialServer, mode: str) -> None:
    batches, trailer = read(running.client.do_get(ticket(type="mock", total_rows=10, rows_per_batch=10, mode=mode)))
    assert [batch.num_rows for batch in batches] == [10]
    assert (trailer["rows"], trailer["bytes"]) == (10, 10 * 50 * 4)
    assert running.settled()
    assert running.stats()["sources"]["mock"]["finished"] == 1


def test_the_sources_summary_is_in_the_trailer(running: TrialServer, mode: str) -> None:
    _, trailer = read(running.client.do_get(ticket(type="trial", mode=mode)))
    assert trailer["sha256"] == "abc"


def test_an_empty_answer_is_a_table_without_rows(running: TrialServer, mode: str) -> None:
    table = running.client.do_get(ticket(type="trial", rows=0, mode=mode)).read_all()
    assert table.num_rows == 0
    assert table.column_names == ["n"]


def test_silence_is_not_sent_on(running: TrialServer, mode: str) -> None:
    batches, trailer = read(running.client.do_get(ticket(type="trial", rows=2, silences=3, mode=mode)))
    assert [number for batch in batches for number in batch.column("n").to_pylist()] == [0, 1]
    assert all(batch.num_rows for batch in batches[:-1])
    assert trailer["rows"] == 2


def test_a_long_silence_is_a_sign_of_life(running: TrialServer, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "HEARTBEAT_SECONDS", 0.0)
    batches, _ = read(running.client.do_get(ticket(type="trial", rows=1, silences=2, mode=mode)))
    assert [batch.num_rows for batch in batches] == [0, 0, 1, 0]


def test_large_batches_are_split_to_what_every_client_takes(running: TrialServer, mode: str) -> None:
    batches, trailer = read(running.client.do_get(ticket(type="trial", rows=2, big=True, mode=mode)))
    assert max(batch.nbytes for batch in batches) <= MAX_MESSAGE_BYTES
    assert len(batches) > 8
    numbers = pa.Table.from_batches(batches).column("n")
    assert numbers.to_numpy().tolist() == [0] * 1_000_000 + [1] * 1_000_000
    assert trailer["rows"] == 2_000_000


def test_dictionary_columns_arrive_as_their_values(running: TrialServer, mode: str) -> None:
    table = running.client.do_get(ticket(type="trial", dictionary=True, mode=mode)).read_all()
    assert table.schema.field("n").type == pa.string()
    assert table.column("n").to_pylist() == ["0", "1", "2"]


def test_the_error_as_data(running: TrialServer, mode: str) -> None:
    with pytest.raises(flight.FlightServerError) as raised:
        running.client.do_get(ticket(type="trial", error="device", mode=mode)).read_all()
    assert json.loads(raised.value.extra_info) == {
        "code": "device.exception",
        "what": "it raised",
        "where": "demo",
        "kind": "ValueError",
        "traceback": "Traceback (on the board)",
    }


@pytest.mark.usefixtures("lively")
def test_a_client_that_leaves_ends_the_source_even_while_it_is_idle(running: TrialServer, mode: str) -> None:
    reader = running.client.do_get(ticket(type="trial", rows=1, idle=True, mode=mode))
    assert reader.read_chunk().data.num_rows == 1
    reader.cancel()
    assert running.trials.closed.wait(SOON)
    assert running.settled()
    assert running.stats()["cancelled"] == 1


def test_what_an_unread_client_leaves_is_bounded_and_closed(running: TrialServer, mode: str) -> None:
    reader = running.client.do_get(ticket(type="trial", rows=1_000, big=True, mode=mode))
    assert running.trials.begun.wait(SOON)
    reader.read_chunk()
    reader.cancel()
    assert running.trials.closed.wait(SOON)
    assert running.settled()
    assert running.stats()["bytes"] < 500 * 8_000_000
