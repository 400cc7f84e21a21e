"""Flight SQL's messages, with any bytes as a message or as the content of one: an answer or a `RequestError`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from fastflight.access.identity import ANYBODY
from fastflight.errors import RequestError
from fastflight.protocol.flight_sql import (
    MESSAGES,
    PACKAGE,
    ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult,
    CommandGetDbSchemas,
    CommandGetSqlInfo,
    CommandGetTables,
    CommandPreparedStatementQuery,
    CommandStatementQuery,
    decode,
    encode,
)
from fastflight.server.flight_sql import FlightSql
from fastflight.server.sql_commands import CLOSE, CREATE
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.protobuf import field
from tests.campaigns.fuzz.target import Target

SCHEMA = pa.schema({"n": pa.int64()})


@dataclass
class FewTables:
    """An engine with one table, which takes any query."""

    catalog: str = "server"
    device: str = "demo"
    name: str = "a.csv"
    type: str = "TABLE"
    schema: pa.Schema = SCHEMA
    parameters: pa.Schema = SCHEMA

    def prepare(self, query: str, identity: object) -> FewTables:
        return self

    def tables(self, *given: object, **named: object) -> list[FewTables]:
        return [self]

    def schemas(self, *given: object) -> list[str]:
        return [self.device]


SQL = FlightSql(FewTables())
ACTIONS = {action.name: action for action in SQL.actions()}


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    if kind & 1:
        name = material.pick(tuple(MESSAGES))
        content = field(1, f"type.googleapis.com/{PACKAGE}.{name}".encode()) + field(2, material.rest())
    else:
        content = material.rest()
    try:
        assert decode(encode(decode(content))) == decode(content)
        if kind & 2:
            for result in ACTIONS[CREATE].run(content, ANYBODY):
                prepared = decode(result)
                assert isinstance(prepared, ActionCreatePreparedStatementResult)
                close = ActionClosePreparedStatementRequest(prepared.prepared_statement_handle)
                assert list(ACTIONS[CLOSE].run(encode(close), ANYBODY)) == []
        else:
            answer = SQL.resolve(content, ANYBODY)
            assert answer.read is None or answer.read(lambda: None).schema == answer.schema
    except RequestError as error:
        assert str(error)


TARGET = Target(
    run,
    seeds=(
        b"\x00" + encode(CommandStatementQuery("select 1", b"\x01")),
        b"\x00" + encode(CommandPreparedStatementQuery(b"0123456789abcdef")),
        b"\x00" + encode(CommandGetSqlInfo((0, 3, 503, 2**32 - 1))),
        b"\x00" + encode(CommandGetDbSchemas("server", "d%")),
        b"\x00" + encode(CommandGetTables(None, "%", r"a\_[%", ("TABLE", "VIEW"), True)),
        b"\x02" + encode(ActionCreatePreparedStatementRequest("select 1")),
        b"\x01\x05\x0a\x06server\x12\x02d_\x1a\x01%\x22\x05TABLE\x28\x01",
        b"\x01\x02\x0a\x03\x00\x01\xf4",
        b"\x00\x0a\xff\xff\xff\xff\xff\x01",
    ),
    modules=(
        "fastflight.protocol.flight_sql",
        "fastflight.server.flight_sql",
        "fastflight.server.sql_metadata",
        "fastflight.server.sql_info",
    ),
    max_bytes=256,
)
