"""The Flight server by the wire: any bytes in any RPC get an answer or a documented status, and it goes on.

The client is gRPC's own, with messages made by hand: Arrow's would not send what is wrong. The batches of an upload are
Arrow IPC of which bytes are changed. Both are in this process, so that what crashes the server ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import grpc  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.identity import ANYBODY
from fastflight.concurrency import Shards
from fastflight.concurrency.blocking import Blocking, NonBlocking
from fastflight.protocol.flight_sql import (
    ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult,
    CommandGetCatalogs,
    CommandGetDbSchemas,
    CommandGetSqlInfo,
    CommandGetTables,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
    decode,
    encode,
)
from fastflight.server import FlightServer
from fastflight.server.flight_sql import FlightSql
from fastflight.server.sql_commands import CREATE
from fastflight.service import Catalog
from fastflight.service.requests import DeviceFile, DeviceTree, Sql
from fastflight.service.source import Acknowledge, Estimate, Reading, Summary
from fastflight.sources.content import FileContent
from fastflight.sources.tree_rows import TreeContent
from fastflight.sql.engine import SqlEngine
from fastflight.tables import Layout
from fastflight_benchmark import mock
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.protobuf import field
from tests.campaigns.fuzz.target import Target
from tests.support.function_source import FunctionSource

SCHEMA = pa.schema({"n": pa.int64()})
SERVICE = "/arrow.flight.protocol.FlightService/"
# Far longer than any answer takes: what is met is a hang.
SECONDS = 20.0
DOCUMENTED = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNIMPLEMENTED,
        # Arrow's own, for a message that is none of Flight's: its handlers are not reached.
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)
# What no client may be told: that an error was not expected, or where the server's code is.
SECRETS = ("internal error", "Traceback", ".py", "/fastflight", "object at 0x")
FORMATS = ("csv", "jsonl", "packed", "arrow", "raw")
COMMANDS: tuple[dict[str, Any], ...] = (
    {"type": "mock"},
    {"type": "mock", "mode": "sync"},
    *({"type": "device.file", "device": "d", "path": "/x", "format": each, "mode": "sync"} for each in FORMATS),
    {"type": "device.file", "device": "d", "path": "/x", "format": "packed", "record": "<iq", "columns": ["i", "t"]},
    {"type": "device.tree", "device": "d"},
)
TABLES = (
    pa.table({"i": pa.array([1, None, 3], pa.int8()), "s": ["a", "é", None]}),
    pa.table(
        {"l": [[1], None, [2, 3]], "o": [{"a": 1.5}, None, {}], "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}
    ),
    pa.table({"d": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [b"", b"abc", None], "f": [True, None, False]}),
    pa.table({"path": ["a", "a", "b"], "offset": [0, 1, 0], "data": [b"x", b"yz", b""]}),
    pa.table({"offset": [0, 3], "data": [b"abc", b"d"]}),
    pa.table({"v": pa.array(["a long string that is not inlined", "b", None], pa.string_view())}),
    pa.table({"i": pa.array([1, 2], pa.int32()), "t": pa.array([1, 2], pa.int64())}),
    pa.table({"m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())), "n": pa.nulls(3)}),
    # A parameter of a query.
    pa.table({"1": pa.array([1.5])}),
)


@dataclass
class FewTables:
    """An SQL engine with one table, which takes any query, and the listing of its tables."""

    catalog: str = "server"
    device: str = "demo"
    name: str = "a.csv"
    type: str = "TABLE"
    schema: pa.Schema = SCHEMA
    parameters: pa.Schema = SCHEMA

    def prepare(self, query: str, identity: object) -> FewTables:
        return self

    @property
    def tables(self) -> FewTables:
        return self

    def listing(self, *given: object, **named: object) -> list[FewTables]:
        return [self]

    def schemas(self, *given: object) -> list[str]:
        return [self.device]


def messages(table: pa.Table) -> list[tuple[bytes, bytes]]:
    """The table as header and body of each message, as an upload carries it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return [
        (message.metadata.to_pybytes(), message.body.to_pybytes() if message.body else b"")
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]


UPLOADS = tuple(messages(table) for table in TABLES)
# Flight SQL's commands, among them one with the handle of a statement that is prepared.
METADATA = (
    CommandGetCatalogs(),
    CommandGetDbSchemas("server", "%"),
    CommandGetTables(None, None, "a%", (), True),
    CommandGetSqlInfo((0, 500)),
    CommandStatementQuery("select 1"),
)
# What is cancelled and renewed: Arrow reads both in C++.
ENDPOINT = flight.FlightEndpoint(b'{"type":"mock"}', ["grpc://127.0.0.1:1", "arrow-flight-reuse-connection://?"])
INFO = flight.FlightInfo(SCHEMA, flight.FlightDescriptor.for_path("a", "b"), [ENDPOINT, ENDPOINT])
_of_sql: list[bytes] = []
_channel: list[grpc.Channel] = []


def write(
    request: DeviceFile, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge
) -> Summary:
    """As the source of files does, without a device."""
    layout = Layout(request.format or "raw", request.schema_, request.columns, request.record)
    content = FileContent(layout, schema, acknowledge, request.sha256)
    content.start(next(batches, None))
    return {"rows": 0, "bytes": sum(map(len, Blocking(content.pieces(NonBlocking(batches)))))}


def write_tree(
    request: DeviceTree, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge
) -> Summary:
    """As the source of trees does, without a device."""
    files = Blocking(TreeContent(schema, acknowledge).files(NonBlocking(batches)))
    return {"rows": 0, "bytes": sum(len(piece) for _, pieces in files for piece in Blocking(pieces))}


@contextmanager
def served() -> Iterator[None]:
    """A server, and a channel to it."""
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    catalog.add(FunctionSource(DeviceFile, write=write))
    catalog.add(FunctionSource(DeviceTree, write=write_tree))
    catalog.add(FunctionSource(Sql, read=lambda _: Reading(SCHEMA), describe=lambda _: Estimate(SCHEMA)))
    sql = FlightSql(cast(SqlEngine, FewTables()))
    (create,) = (action for action in sql.actions() if action.name == CREATE)
    (prepared,) = create.run(encode(ActionCreatePreparedStatementRequest("select ?")), ANYBODY)
    result = decode(prepared)
    assert isinstance(result, ActionCreatePreparedStatementResult)
    _of_sql[:] = [encode(each) for each in (*METADATA, CommandPreparedStatementQuery(result.prepared_statement_handle))]
    with (
        FlightServer(catalog, shards=Shards(1).start(), location="grpc://127.0.0.1:0", sql=sql) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        _channel.append(channel)
        try:
            yield
        finally:
            _channel.clear()


def call(name: str, *sent: bytes) -> tuple[grpc.StatusCode, str, list[bytes]]:
    """How an RPC ended, and what it answered."""
    answers: list[bytes] = []
    try:
        # On the wire a call with one message is a stream of one.
        for answer in _channel[0].stream_stream(SERVICE + name)(iter(sent), timeout=SECONDS):
            answers.append(answer)
            if len(answers) == 5:
                break
    except grpc.RpcError as error:
        return error.code(), error.details() or "", answers
    return grpc.StatusCode.OK, "", answers


def changed(data: bytes, material: Material) -> bytes:
    """`data` with some bytes replaced."""
    found = bytearray(data)
    for _ in range(material.byte() & 3):
        at = (material.byte() << 8 | material.byte()) % (len(found) + 1)
        fresh = material.take(1 + material.byte() % 8)
        found[at : at + len(fresh)] = fresh
    return bytes(found)


def upload(material: Material, command: bytes = b"") -> Iterator[bytes]:
    """The messages of a DoPut or DoExchange."""
    command = command or changed(json.dumps(material.pick(COMMANDS)).encode(), material)
    descriptor = field(1, 2) + field(2, command)
    for number, (header, body) in enumerate(material.pick(UPLOADS)):
        header, body = changed(header, material), changed(body, material)
        first = field(1, descriptor) if number == 0 else b""
        metadata = field(3, material.piece()) if material.byte() & 1 else b""
        yield first + field(2, header) + metadata + field(1000, body)


def run(data: bytes) -> None:
    material = Material(data)
    match material.byte() % 10:
        case 0:
            ended = call("DoPut", *upload(material))
        case 1:
            ended = call("DoExchange", *upload(material))
        case 2:
            ended = call("DoGet", field(1, material.stretched()))
        case 3:
            ended = call("ListFlights", field(1, material.stretched()))
        case 4:
            ended = call("GetFlightInfo", field(1, 2) + field(2, material.stretched()))
        case 5:
            ended = call("GetSchema", field(1, 1) + field(3, material.piece()) + field(3, material.piece()))
        case 6:
            action = material.pick(("health", "stats", "CancelFlightInfo", "RenewFlightEndpoint", "x"))
            ended = call("DoAction", field(1, action.encode()) + field(2, material.stretched()))
        case 7:
            name = material.pick(("DoPut", "DoGet", "GetFlightInfo", "Handshake", "ListActions", "DoAction", "No"))
            ended = call(name, material.piece(), material.rest())
        case 8:
            command = changed(material.pick(_of_sql), material)
            name = material.pick(("GetFlightInfo", "GetSchema", "DoGet", "DoPut"))
            described = field(1, 2) + field(2, command)
            sent = (
                upload(material, command) if name == "DoPut" else [field(1, command) if name == "DoGet" else described]
            )
            ended = call(name, *sent)
        case _:
            mode = material.pick(("sync", "async"))
            few = json.dumps({"type": "mock", "total_rows": 5, "variant": "simple", "mode": mode}).encode()
            ended = call("DoGet", field(1, changed(few, material)))
    code, text, _ = ended
    assert code in DOCUMENTED, (code, text)
    assert not any(secret in text for secret in SECRETS), text
    if data[-1:] == b"\0":
        code, text, (answer,) = call("DoAction", field(1, b"health"))
        assert code is grpc.StatusCode.OK and b"serving" in answer, (code, text)


TARGET = Target(
    run,
    seeds=(
        *(bytes([0, command, 0, table]) for command, table in zip(range(9), (0, 0, 0, 1, 6, 2, 4, 6, 3), strict=True)),
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x10\x02\xff\xff\xff",
        b"\x00\x05\x00\x02\x01\x00\x40\x03\xff\xff\xff\x7f",
        b"\x01\x00\x00\x00",
        b'\x02\x00{"type":"mock","total_rows":3}',
        b"\x03\x00mo*",
        b'\x04\x00{"type":"mock","endpoints":3}',
        b"\x05\x01d\x02/x",
        b"\x06\x01\x00{}",
        *(b"\x06\x02\x00" + body for body in (INFO.serialize(), field(1, INFO.serialize()))),
        *(b"\x06\x03\x00" + body for body in (ENDPOINT.serialize(), field(1, ENDPOINT.serialize()))),
        b"\x07\x00\x00\x00",
        b"\x09\x01\x00\x00",
        *(bytes([8, command, 0, call]) for command in range(6) for call in range(3)),
        *(b"\x08\x05\x00\x03" + bytes([table, 0, 0, 0, 0, 0, 0]) for table in range(9)),
        b"\x08\x05\x01\x00\x60\x00\x03\x00\x00\x00",
    ),
    max_bytes=340,
    seconds=60,
    running=served,
)
