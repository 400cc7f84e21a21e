"""Broken batches: `batches` has them. By DoPut and DoExchange, by HTTP, and as a file on a board."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from fastflight.errors import DataError, FastFlightError
from fastflight.tables import Layout, open_reader

from . import batches
from .broken import frame, stream
from .case import Case, discreet, each
from .conftest import Edges

SERVICE = "/arrow.flight.protocol.FlightService/"
ALL = batches.CONTENT + batches.MESSAGES
SOON = 60.0


@pytest.fixture(scope="module")
def raw(edges: Edges) -> Iterator[grpc.Channel]:
    unlimited = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(edges.location.removeprefix("grpc://"), options=unlimited) as channel:
        grpc.channel_ready_future(channel).result(SOON)
        yield channel


def put(channel: grpc.Channel, case: Case, request: bytes, method: str = "DoPut") -> str:
    """The text of the refusal, which must be one."""
    first, *rest = case.given
    call = channel.stream_stream(SERVICE + method, lambda data: data, lambda data: data)
    with pytest.raises(grpc.RpcError) as raised:
        list(call(iter([frame(first, command=request), *map(frame, rest)]), timeout=SOON))
    error = raised.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (error.code(), error.details())
    text = str(error.details())
    discreet(text)
    return text


@each(ALL + batches.BY_FLIGHT)
def test_an_upload(edges: Edges, raw: grpc.Channel, case: Case) -> None:
    text = put(raw, case, b'{"type": "mock"}')
    assert case.says in text
    assert "DataError" in text


@each(ALL[::8])
def test_a_synchronous_upload(edges: Edges, raw: grpc.Channel, case: Case) -> None:
    """Batches are decoded before the mode matters."""
    assert case.says in put(raw, case, b'{"type": "mock", "mode": "sync"}')


@each(ALL[::8])
def test_an_upload_to_a_device(edges: Edges, raw: grpc.Channel, case: Case) -> None:
    text = put(raw, case, b'{"type": "device.file", "device": "demo", "path": "/a.csv", "format": "arrow"}')
    assert case.says in text
    edges.goes_on()


@each(batches.EXCHANGED)
def test_an_exchange(edges: Edges, raw: grpc.Channel, case: Case) -> None:
    text = put(raw, case, b'{"type": "device.session", "device": "demo"}', "DoExchange")
    assert case.says in text
    assert "DataError" in text


@each(ALL[::8])
def test_an_upload_by_http(edges: Edges, case: Case) -> None:
    """It is read as a file is."""
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    url = "/devices/demo/files/a.csv"
    answer = edges.http.put(url, content=stream(*case.given), headers=headers, params={"format": "jsonl"})
    assert answer.status_code == 422, answer.text
    discreet(answer.json()["text"])
    assert answer.json()["code"] == DataError.code


@each(ALL)
def test_a_file(case: Case) -> None:
    reader = open_reader(Layout("arrow"))
    try:
        rows = sum(batch.num_rows for batch in reader.feed(stream(*case.given)) + reader.finish())
    except FastFlightError as error:
        assert type(error) is DataError
        discreet(str(error))
    else:
        assert rows == 0
        assert reader.summary.rejected == 1
