"""Flight SQL on the wire: whose a prepared statement is, what a token hides, and what is refused with which status."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.token_file import change
from fastflight.concurrency import Shards
from fastflight.protocol.flight_sql import (
    PACKAGE,
    ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult,
    CommandGetDbSchemas,
    CommandGetTables,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
    Message,
    decode,
    encode,
)
from fastflight.server import FlightServer
from fastflight.server.actions import NOT_CANCELLABLE
from fastflight.server.sql_commands import UNSUPPORTED_ACTIONS
from fastflight.service import Catalog
from tests.campaigns.fuzz.protobuf import field
from tests.support.servers import serving

GRANTED = {"reader": "read:lab-1", "other": "read:lab-1", "admin": "admin:*"}
# Commands of Flight SQL that a server for reading does not have.
UNSUPPORTED = (
    "CommandStatementSubstraitPlan",
    "CommandGetPrimaryKeys",
    "CommandGetXdbcTypeInfo",
    "CommandStatementUpdate",
    "CommandPreparedStatementUpdate",
    "CommandStatementIngest",
)


class SqlCaller:
    """A plain Flight client that speaks Flight SQL, with a token or without."""

    def __init__(self, client: flight.FlightClient, token: str = "") -> None:
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.client = client
        self.options = flight.FlightCallOptions(headers=headers)

    def info(self, command: Message | bytes) -> flight.FlightInfo:
        data = command if isinstance(command, bytes) else encode(command)
        return self.client.get_flight_info(flight.FlightDescriptor.for_command(data), self.options)

    def read(self, command: Message) -> list[dict[str, Any]]:
        (endpoint,) = self.info(command).endpoints
        rows: list[dict[str, Any]] = self.client.do_get(endpoint.ticket, self.options).read_all().to_pylist()
        return rows

    def act(self, name: str, body: Message | bytes) -> list[bytes]:
        data = body if isinstance(body, bytes) else encode(body)
        results = self.client.do_action(flight.Action(name, data), self.options)
        return [result.body.to_pybytes() for result in results]

    def prepare(self, query: str) -> ActionCreatePreparedStatementResult:
        (result,) = self.act("CreatePreparedStatement", ActionCreatePreparedStatementRequest(query))
        prepared = decode(result)
        assert isinstance(prepared, ActionCreatePreparedStatementResult)
        return prepared

    def put(self, command: Message | bytes, *rows: pa.RecordBatch) -> None:
        data = command if isinstance(command, bytes) else encode(command)
        writer, _ = self.client.do_put(flight.FlightDescriptor.for_command(data), rows[0].schema, self.options)
        with writer:
            for row in rows:
                writer.write_batch(row)


def row(**values: Any) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array([value]) for name, value in values.items()})


# Opens the line of the board, and starts the process that queries have: both stay, and are no leak of a test.
FIRST = CommandStatementQuery('select count(*) from "lab-1"."readings.csv"')


@pytest.fixture(scope="module")
def caller() -> Iterator[SqlCaller]:
    with serving({"lab-1": "sim:"}) as server, flight.connect(server.location) as client:
        SqlCaller(client).read(FIRST)
        yield SqlCaller(client)


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SqlCaller]]:
    made = {who: issued(who, scopes([granted]), datetime.now(UTC)) for who, granted in GRANTED.items()}
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    change(tokens, lambda _: Book(tuple(entry for entry, _ in made.values())))
    boards = {"lab-1": "sim:", "lab-2": "sim:"}
    with serving(boards, auth={"tokens": tokens}) as server, flight.connect(server.location) as client:
        callers = {who: SqlCaller(client, token) for who, (_, token) in made.items()}
        callers["reader"].read(FIRST)
        yield callers


def test_parameters_of_each_type_reach_the_query(caller: SqlCaller) -> None:
    query = (
        "select $1::bigint a, $2::double b, $3::timestamptz c, $4::decimal(5,2) d, $5::text e, $6::bool f, $7::date g"
    )
    prepared = caller.prepare(query)
    assert len(pa.ipc.read_schema(pa.py_buffer(prepared.parameter_schema))) == 7
    assert pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema)).names == list("abcdefg")
    time = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    command = CommandPreparedStatementQuery(prepared.prepared_statement_handle)
    caller.put(command, row(a=2**60, b=float("inf"), c=time, d=Decimal("1.25"), e="é", f=True, g=time.date()))
    expected = {"a": 2**60, "b": float("inf"), "c": time, "d": Decimal("1.25"), "e": "é", "f": True, "g": time.date()}
    assert caller.read(command) == [expected]
    caller.put(command, row(a=None, b=None, c=None, d=None, e=None, f=None, g=None))
    assert caller.read(command) == [dict.fromkeys("abcdefg")]


def test_other_parameters_are_refused(caller: SqlCaller) -> None:
    command = CommandPreparedStatementQuery(caller.prepare("select ?::int a").prepared_statement_handle)
    with pytest.raises(pa.ArrowInvalid, match="1 parameters, not 2"):
        caller.put(command, row(a=1, b=2))
    for rows, words in (
        ((row(a=1), row(a=2)), "one row"),
        ((row(a=b"\0"),), "type binary"),
        ((row(a=[1]),), "type list"),
    ):
        with pytest.raises(pa.ArrowNotImplementedError, match=words):
            caller.put(command, *rows)
    caller.put(command, row(a=3))
    assert caller.read(command) == [{"a": 3}]


def test_a_prepared_statement_belongs_to_its_client(callers: dict[str, SqlCaller]) -> None:
    handle = callers["reader"].prepare('select count(*) n from "lab-1"."readings.csv"').prepared_statement_handle
    command = CommandPreparedStatementQuery(handle)
    callers["other"].act("ClosePreparedStatement", ActionClosePreparedStatementRequest(handle))
    with pytest.raises(KeyError, match="no such prepared statement"):
        callers["other"].info(command)
    with pytest.raises(KeyError, match="no such prepared statement"):
        callers["other"].put(command, row(a=1))
    assert callers["reader"].read(command) == [{"n": 10_000}]
    callers["reader"].act("ClosePreparedStatement", ActionClosePreparedStatementRequest(handle))
    with pytest.raises(KeyError, match="no such prepared statement"):
        callers["reader"].info(command)


def test_what_a_token_may_not_read_is_not_there(callers: dict[str, SqlCaller]) -> None:
    def schemas(who: str) -> list[str]:
        return [each["db_schema_name"] for each in callers[who].read(CommandGetDbSchemas())]

    assert schemas("reader") == ["fastflight", "lab-1"] and schemas("admin") == ["fastflight"]
    tables = callers["reader"].read(CommandGetTables(table_name_filter_pattern="readings%", include_schema=True))
    assert [each["db_schema_name"] for each in tables] == ["lab-1"]
    with pytest.raises(KeyError, match="lab-2"):
        callers["reader"].info(CommandStatementQuery('select * from "lab-2"."readings.csv"'))
    with pytest.raises(flight.FlightUnauthenticatedError):
        SqlCaller(callers["reader"].client).info(CommandGetTables())
    with pytest.raises(flight.FlightUnauthenticatedError):
        SqlCaller(callers["reader"].client).prepare("select 1")


def test_all_else_is_unimplemented(caller: SqlCaller) -> None:
    for name in UNSUPPORTED:
        command = field(1, f"type.googleapis.com/{PACKAGE}.{name}".encode()) + field(2, field(1, b"x"))
        for call in (caller.info, lambda command: caller.put(command, row(a=1))):
            with pytest.raises(pa.ArrowNotImplementedError, match=name):
                call(command)
    for name in UNSUPPORTED_ACTIONS:
        with pytest.raises(pa.ArrowNotImplementedError, match=name):
            caller.act(name, b"")
    for command in (CommandStatementQuery("select 1"), CommandGetTables()):
        with pytest.raises(pa.ArrowNotImplementedError):
            caller.put(command, row(a=1))
    with pytest.raises(pa.ArrowNotImplementedError, match="no transactions"):
        caller.info(CommandStatementQuery("select 1", b"one"))
    with pytest.raises(pa.ArrowNotImplementedError, match="not a ticket"):
        caller.client.do_get(flight.Ticket(encode(CommandStatementQuery("select 1"))))
    listed = {action.type for action in caller.client.list_actions()}
    assert {"CreatePreparedStatement", "ClosePreparedStatement", "CloseSession"} <= listed
    assert not listed & {*UNSUPPORTED_ACTIONS}
    assert caller.act("CloseSession", b"") == [b"\x08\x01"]


def test_flights_of_sql_can_be_cancelled_and_renewed_as_others(caller: SqlCaller) -> None:
    for command in (CommandStatementQuery("select 1"), CommandGetTables()):
        info = caller.info(command)
        assert caller.act("CancelFlightInfo", field(1, info.serialize())) == [NOT_CANCELLABLE]
        (endpoint,) = info.endpoints
        assert caller.act("RenewFlightEndpoint", field(1, endpoint.serialize())) == [endpoint.serialize()]


def test_without_the_extra_each_way_in_names_it() -> None:
    with FlightServer(Catalog(), shards=Shards(1).start(), location="grpc://127.0.0.1:0") as server:
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
            bare = SqlCaller(client)
            ways = (
                lambda: bare.info(CommandStatementQuery("select 1")),
                lambda: bare.prepare("select 1"),
                lambda: bare.put(CommandPreparedStatementQuery(b"x"), row(a=1)),
                lambda: client.do_get(flight.Ticket(encode(CommandGetTables()))),
                lambda: bare.act("BeginTransaction", b""),
            )
            for way in ways:
                with pytest.raises(pa.ArrowNotImplementedError, match="the extra `sql`"):
                    way()
            assert not {action.type for action in client.list_actions()} & {"CreatePreparedStatement", "CloseSession"}
