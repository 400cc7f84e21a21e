"""Bad requests, by Flight and by HTTP: `tickets` has them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from . import tickets
from .case import Case, each
from .conftest import Edges


@pytest.fixture(autouse=True)
def _alive(edges: Edges) -> Iterator[None]:
    yield
    edges.goes_on()


# What is asked of each call that describes a flight: that it is decoded, and that its source is asked.
DESCRIBED = (
    "nothing",
    "UTF-16",
    "a byte too many",
    "an unknown type",
    "a device that is not there",
    "a file that is not there",
)
# What fails when its answer has begun breaks off by HTTP: that is another test's.
BEGUN = "code that is none"


@each(tickets.UNREADABLE + tickets.REFUSED)
def test_a_ticket(edges: Edges, case: Case) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        edges.get(case.given)
    edges.refused(case, raised.value)
    if case.name == BEGUN:
        return
    answer = edges.http.post("/stream", content=case.given)
    if answer.status_code != 413:  # HTTP has a status of its own for a request that is too long
        edges.answered(case, answer)


@pytest.mark.parametrize("call", ["get_flight_info", "get_schema"])
@each([each for each in tickets.UNREADABLE + tickets.REFUSED if each.name in DESCRIBED])
def test_a_command(edges: Edges, case: Case, call: str) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        getattr(edges.client, call)(flight.FlightDescriptor.for_command(case.given))
    edges.refused(case, raised.value)


TABLES = {
    "numbers": pa.table({"n": pa.array(range(5000), pa.int64())}),
    "nulls": pa.table({"n": pa.array([1, None], pa.int64())}),
    "lists": pa.table({"n": [[1], [2]]}),
    "bytes": pa.table({"offset": pa.array([0], pa.int64()), "data": [b"abc"]}),
}


@each(tickets.WRITES)
def test_a_write(edges: Edges, case: Case) -> None:
    request, table = case.given
    writer, reader = edges.client.do_put(flight.FlightDescriptor.for_command(request), TABLES[table].schema)
    with pytest.raises((pa.ArrowException, KeyError)) as raised, writer:
        writer.write_table(TABLES[table], max_chunksize=1000)
        writer.done_writing()
        while reader.read() is not None:
            pass
    edges.refused(case, raised.value)


@each(tickets.DESCRIPTORS)
def test_a_path_descriptor(edges: Edges, case: Case) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        edges.client.get_flight_info(flight.FlightDescriptor.for_path(*case.given))
    edges.refused(case, raised.value)


@each(tickets.CRITERIA)
def test_criteria(edges: Edges, case: Case) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        list(edges.client.list_flights(case.given))
    edges.refused(case, raised.value)


@each(tickets.ACTIONS)
def test_an_action(edges: Edges, case: Case) -> None:
    name, body = case.given
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        edges.act(name, body)
    edges.refused(case, raised.value)
    if name and "/" not in name:
        answer = edges.http.post(f"/actions/{name}", content=body)
        if answer.status_code != 413:
            edges.answered(case, answer)


@each(tickets.PROTOBUF)
def test_a_protobuf_body(edges: Edges, case: Case) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as raised:
        edges.act(*case.given)
    edges.refused(case, raised.value)
