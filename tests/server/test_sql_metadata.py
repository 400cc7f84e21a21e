"""Flight SQL's answers about tables and the server: columns as in FlightSql.proto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fastflight.access.identity import ANYBODY, Identity
from fastflight.protocol.flight_sql import (
    CommandGetCatalogs,
    CommandGetDbSchemas,
    CommandGetTables,
    CommandGetTableTypes,
)
from fastflight.server.sql_info import ENTRIES, SCHEMA, sql_info
from fastflight.server.sql_metadata import Check, Command, answer, schema_of

COLUMNS = pa.schema({"time": pa.timestamp("us", "UTC"), "n": pa.int64()})


@dataclass
class Named:
    device: str
    name: str
    type: str = "TABLE"
    catalog: str = "server"
    schema: pa.Schema | None = None


class Tables:
    """Has four tables, and notes the patterns that it is given."""

    tables_of = (
        Named("demo", "readings.csv", schema=COLUMNS),
        Named("demo", "events.jsonl"),
        Named("bench", "readings.csv"),
        Named("fastflight", "devices", "SYSTEM TABLE"),
    )

    def __init__(self) -> None:
        self.patterns: list[object] = []

    def listing(
        self, identity: Identity, schema: str | None, table: str | None, *, with_schemas: bool, check: Check
    ) -> Sequence[Named]:
        check()
        self.patterns += [schema, table, with_schemas]
        return self.tables_of

    def schemas(self, identity: Identity, schema: str | None) -> Sequence[str]:
        self.patterns.append(schema)
        return ["fastflight", "demo", "empty"]


def connected() -> None:
    """The client has not left."""


def rows(command: Command, tables: Tables | None = None) -> list[dict[str, object]]:
    found: list[dict[str, object]] = answer(command, tables or Tables(), ANYBODY, connected).to_pylist()
    return found


def test_catalogs_schemas_and_types_are_sorted() -> None:
    assert rows(CommandGetCatalogs()) == [{"catalog_name": "server"}]
    assert rows(CommandGetTableTypes()) == [{"table_type": "SYSTEM TABLE"}, {"table_type": "TABLE"}]
    tables = Tables()
    schemas = rows(CommandGetDbSchemas("server", "d%"), tables)
    assert [row["db_schema_name"] for row in schemas] == ["demo", "empty", "fastflight"]
    assert tables.patterns == ["d%"]


def test_tables_are_sorted_and_chosen_by_catalog_and_type() -> None:
    tables = Tables()
    listed = rows(CommandGetTables(None, "d%", "_"), tables)
    assert [(row["db_schema_name"], row["table_name"]) for row in listed] == [
        ("bench", "readings.csv"),
        ("demo", "events.jsonl"),
        ("demo", "readings.csv"),
        ("fastflight", "devices"),
    ]
    assert tables.patterns == ["d%", "_", False]
    assert [row["table_name"] for row in rows(CommandGetTables(table_types=("VIEW", "SYSTEM TABLE")))] == ["devices"]


def test_nothing_is_listed_where_nothing_can_fit() -> None:
    tables = Tables()
    for command in (
        CommandGetTables(catalog=""),
        CommandGetTables(table_types=("VIEW",), include_schema=True),
        CommandGetDbSchemas("other"),
    ):
        assert rows(command, tables) == []
        assert answer(command, tables, ANYBODY, connected).schema == schema_of(command)
    assert tables.patterns == []


def test_schemas_of_tables_are_ipc_messages() -> None:
    tables = answer(CommandGetTables(include_schema=True), Tables(), ANYBODY, connected)
    assert tables.schema.field("table_schema").nullable is False
    schemas = [pa.ipc.read_schema(pa.py_buffer(each)) for each in tables.column("table_schema").to_pylist()]
    assert [each.names for each in schemas] == [[], [], ["time", "n"], []]


def test_each_entry_of_sql_info_is_there_with_its_type() -> None:
    everything = sql_info(())
    everything.validate(full=True)
    assert everything.schema == SCHEMA
    numbers = everything.column("info_name").to_pylist()
    assert set(numbers) == set(ENTRIES) >= {*range(9), 100, 101, *range(500, 577)}
    some = sql_info((504, 9999, 3, 504)).to_pylist()
    assert some == [{"info_name": 504, "value": '"'}, {"info_name": 3, "value": True}]
