"""Rows over HTTP: as they come, in each format, to their end or visibly not; and clients that stall or leave."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

from fastflight.gateway.asgi import Scope
from fastflight.gateway.backend import AHEAD_BYTES
from fastflight.gateway.content.formats import ERROR, TRAILER

from ..server.conftest import SOON
from .asgi_client import HERE, Answered, AsgiClient, ask, scope
from .conftest import TrialGateway

MEDIA = {"arrow": b"application/vnd.apache.arrow.stream", "jsonl": b"application/jsonl", "csv": b"text/csv"}


def streaming(format_: str = "arrow") -> Scope:
    return scope("/stream", "POST", (HERE, (b"accept", MEDIA[format_])))


def content(**request: Any) -> bytes:
    return json.dumps({"type": "trial", **request}).encode()


def get(running: TrialGateway, format_: str = "arrow", **request: Any) -> Answered:
    return running.run(ask(running.app, streaming(format_), content(**request)))


def arrow(body: bytes) -> tuple[pa.Table, dict[bytes, Any]]:
    """The rows, and what stands in the metadata of the messages."""
    batches, noted = [], {}
    reader = pa.ipc.open_stream(body)
    try:
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            batches.append(batch)
            noted.update({key: json.loads(value) for key, value in (metadata or {}).items()})
    except StopIteration:
        pass
    return pa.Table.from_batches(batches, reader.schema), noted


def test_rows_are_the_same_in_every_format(running: TrialGateway, mode: str) -> None:
    as_arrow = get(running, mode=mode, rows=5)
    table, noted = arrow(as_arrow.body)
    assert table["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert table.schema.metadata[b"fastflight.path"] == mode.encode()
    assert as_arrow.headers[b"fastflight-path"] == mode.encode()
    assert (noted[TRAILER]["rows"], noted[TRAILER]["sha256"]) == (5, "abc")
    lines = get(running, "jsonl", mode=mode, rows=5).body
    assert pa.json.read_json(pa.BufferReader(lines))["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert get(running, "csv", mode=mode, rows=5).body == b"n\n0\n1\n2\n3\n4\n"
    assert running.stats()["finished"] == 3


def test_no_rows_are_a_table_without_rows(running: TrialGateway, mode: str) -> None:
    table, noted = arrow(get(running, mode=mode, rows=0).body)
    assert (table.num_rows, table.schema.names, noted[TRAILER]["rows"]) == (0, ["n"], 0)
    assert get(running, "csv", mode=mode, rows=0).body == b"n\n"


def test_what_is_said_among_the_rows_comes_in_its_place(
    running: TrialGateway, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.runtime.outgoing.HEARTBEAT_SECONDS", 0.0)
    reader = pa.ipc.open_stream(get(running, mode=mode, silences=2, outages=2, rows=1).body)
    said = []
    with contextlib.suppress(StopIteration):
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            said.append((batch.num_rows, *(json.loads(value).get("outage") for value in (metadata or {}).values())))
    silence, last = (0,), (0, None)
    assert said == [silence, silence, (0, {"number": 0}), (0, {"number": 1}), (1,), last]


def test_text_is_encoded_in_slices_of_the_whole(running: TrialGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.content.streaming.CELLS_PER_SLICE", 1000)
    request = json.dumps({"type": "mock", "variant": "simple", "total_rows": 1001}).encode()
    answered = running.run(ask(running.app, streaming("csv"), request))
    assert len(answered.body.splitlines()) == 1002
    assert len(answered.parts) == 1 + 5 + 1  # the head, slices of 250 rows, the end


def test_dictionaries_come_as_their_values(running: TrialGateway, mode: str) -> None:
    table, _ = arrow(get(running, mode=mode, dictionary=True, rows=2).body)
    assert table["n"].to_pylist() == ["0", "1"]


@pytest.mark.usefixtures("lively")
def test_the_first_rows_come_while_the_source_goes_on(running: TrialGateway, mode: str) -> None:
    async def run() -> None:
        client = AsgiClient(running.app, streaming("csv"), content(mode=mode, rows=2, idle=True))
        assert await client.got(len(b"n\n0\n1\n")) == b"n\n0\n1\n"
        assert not client.answered.ended
        client.leave()
        await client.call

    running.run(run())
    assert running.trials.closed.wait(SOON)
    assert running.registry.wait_empty(SOON)
    assert running.stats()["cancelled"] == 1


def test_one_that_leaves_before_the_first_row_cancels_the_source(running: TrialGateway) -> None:
    async def run() -> None:
        client = AsgiClient(running.app, streaming(), content(rows=0, idle=True))
        await client.got(1)
        client.leave()
        await client.call
        assert not client.answered.ended

    running.run(run())
    assert running.trials.closed.wait(SOON)


def test_one_that_does_not_read_stops_the_source(running: TrialGateway) -> None:
    """The table has 800 MB: what is not read ahead is never made."""

    async def run() -> None:
        client = AsgiClient(running.app, streaming(), content(rows=100, big=True), reads=1)
        await client.got(1)
        client.leave()
        await client.call

    running.run(run())
    assert running.trials.closed.wait(SOON)
    assert running.registry.wait_empty(SOON)
    stats = running.stats()
    assert (stats["finished"], stats["cancelled"]) == (0, 1)
    # What waits, what is in hand, and, of a server elsewhere, what is on its way: gRPC widens its window by itself.
    assert stats["bytes"] <= 32 * AHEAD_BYTES


@pytest.mark.parametrize("error", ["busy", "data", "device", "bug", "cancelled", "exit"])
def test_an_error_among_the_rows_is_not_an_end(running: TrialGateway, mode: str, error: str) -> None:
    lines = get(running, "jsonl", mode=mode, rows=2, error=error)
    *rows, last = [json.loads(line) for line in lines.body.splitlines()]
    assert (lines.status, lines.ended, rows) == (200, False, [{"n": 0}, {"n": 1}])
    assert set(last) == {"error"} and last["error"]["code"] and "secret" not in lines.body.decode()
    as_csv = get(running, "csv", mode=mode, rows=2, error=error)
    assert (as_csv.ended, as_csv.body) == (False, b"n\n0\n1\n")
    as_arrow = get(running, mode=mode, rows=2, error=error)
    assert not as_arrow.ended
    _, noted = arrow(as_arrow.body)
    assert noted[ERROR]["code"] == last["error"]["code"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ("busy", 503, "busy"),
        ("missing", 404, "device.file_missing"),
        ("data", 422, "data"),
        ("timeout", 504, "transport.timeout"),
        ("device", 502, "device.exception"),
        ("long", 502, "device.exception"),
        ("bug", 500, "internal"),
        ("cancelled", 503, "stopped"),
    ],
)
def test_an_error_before_the_rows_has_its_status(
    running: TrialGateway, mode: str, error: str, status: int, code: str
) -> None:
    answered = get(running, mode=mode, error=error, at_open=True)
    assert (answered.status, answered.json["code"], answered.ended) == (status, code, True)
    assert "secret" not in answered.json["text"]
    assert running.stats()["open"] == 0


@pytest.mark.usefixtures("lively")
def test_a_shutdown_ends_what_is_open_and_says_so(running: TrialGateway, mode: str) -> None:
    async def run() -> Answered:
        client = AsgiClient(running.app, streaming("jsonl"), content(mode=mode, rows=1, idle=True))
        await client.got(1)
        running.registry.drain()
        running.registry.stop_all()
        await client.call
        refused = await ask(running.app, streaming(), content())
        assert (refused.status, refused.json["what"]) == (503, "the server shuts down")
        return client.answered

    answered = running.run(run())
    assert not answered.ended
    assert json.loads(answered.body.splitlines()[-1])["error"]["what"] == "the server shuts down"


def test_what_a_format_cannot_hold_is_refused_before_anything_is_sent(running: TrialGateway) -> None:
    request = json.dumps({"type": "mock", "variant": "complex", "total_rows": 3}).encode()
    answered = running.run(ask(running.app, streaming("csv"), request))
    assert (answered.status, answered.json["where"]) == (422, "column samples")


@pytest.mark.parametrize(
    ("accept", "query", "status", "media"),
    [
        (b"", "", 200, b"application/vnd.apache.arrow.stream"),
        (b"*/*", "", 200, b"application/vnd.apache.arrow.stream"),
        (b"text/csv;q=0.5, application/x-ndjson", "", 200, b"application/jsonl"),
        (b"text/*;q=0.9", "", 200, b"text/csv; charset=utf-8"),
        (b"image/png", "", 406, b"application/json"),
        (b"text/csv;q=0", "", 406, b"application/json"),
        (b"image/png", "format=csv", 200, b"text/csv; charset=utf-8"),
        (b"", "format=cvs", 400, b"application/json"),
    ],
)
def test_the_format_is_what_the_client_asks_for(
    running: TrialGateway, accept: bytes, query: str, status: int, media: bytes
) -> None:
    asked = scope("/stream", "POST", (HERE, (b"accept", accept)), query)
    answered = running.run(ask(running.app, asked, content(rows=1)))
    assert (answered.status, answered.headers[b"content-type"]) == (status, media)


def test_a_request_that_is_too_long_is_not_read_to_its_end(running: TrialGateway) -> None:
    answered = running.run(ask(running.app, streaming(), b" " * 200_000, b" " * 200_000, b"{}"))
    assert (answered.status, answered.json["where"]) == (413, "content")


def test_what_is_not_there_is_told_whatever_its_query(running: TrialGateway) -> None:
    asked = {**scope("/nothing", "GET"), "query_string": b"\xff\xfe"}
    answered = running.run(ask(running.app, asked))
    assert (answered.status, answered.json["code"]) == (404, "request")
    assert answered.json["text"] == "/nothing: not found. See /openapi.json for all paths"
