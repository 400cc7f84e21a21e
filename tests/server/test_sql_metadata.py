"""Flight SQL's answers about tables and the server: columns as in FlightSql.proto, patterns as in SQL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from fastflight.errors import RequestError
from fastflight.protocol.flight_sql import (
    CommandGetCatalogs,
    CommandGetDbSchemas,
    CommandGetTables,
    CommandGetTableTypes,
)
from fastflight.server.sql_info import ENTRIES, SCHEMA, sql_info
from fastflight.server.sql_metadata import MAX_GLOB_CHARACTERS, answer, like

COLUMNS = pa.schema({"time": pa.timestamp("us", "UTC"), "n": pa.int64()})


@dataclass
class Named:
    device: str
    name: str
    type: str = "TABLE"
    catalog: str = "server"
    schema: pa.Schema | None = None


TABLES = [
    Named("demo", "readings.csv", schema=COLUMNS),
    Named("demo", "events.jsonl"),
    Named("bench", "readings.csv"),
    Named("fastflight", "devices", "SYSTEM TABLE"),
]


def test_catalogs_schemas_and_types_are_there_once_and_sorted() -> None:
    assert answer(CommandGetCatalogs(), TABLES).to_pydict() == {"catalog_name": ["server"]}
    assert answer(CommandGetTableTypes(), TABLES).to_pydict() == {"table_type": ["SYSTEM TABLE", "TABLE"]}
    schemas = answer(CommandGetDbSchemas(), TABLES)
    assert schemas.column("db_schema_name").to_pylist() == ["bench", "demo", "fastflight"]
    assert answer(CommandGetDbSchemas("other"), TABLES).num_rows == 0


def test_tables_are_chosen_by_catalog_patterns_and_types() -> None:
    def names(command: CommandGetTables) -> list[tuple[str, str]]:
        rows = answer(command, TABLES).to_pylist()
        return [(row["db_schema_name"], row["table_name"]) for row in rows]

    assert len(names(CommandGetTables())) == 4
    assert names(CommandGetTables(table_name_filter_pattern="read%.csv")) == [
        ("bench", "readings.csv"),
        ("demo", "readings.csv"),
    ]
    assert names(CommandGetTables(db_schema_filter_pattern="dem_", table_types=("VIEW", "TABLE"))) == [
        ("demo", "events.jsonl"),
        ("demo", "readings.csv"),
    ]
    assert names(CommandGetTables(catalog="")) == names(CommandGetTables(table_types=("VIEW",))) == []


def test_schemas_of_tables_are_ipc_messages() -> None:
    rows = answer(CommandGetTables(db_schema_filter_pattern="demo", include_schema=True), TABLES)
    assert rows.schema.field("table_schema").nullable is False
    events, readings = (pa.ipc.read_schema(pa.py_buffer(each)) for each in rows.column("table_schema").to_pylist())
    assert readings == COLUMNS and len(events) == 0


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("a.csv", "a.csv", True), ("axcsv", "a.csv", False), ("a_b", r"a\_b", True), ("axb", r"a\_b", False),
        ("a%", r"a\%", True), ("ab", r"a\%", False), ("a\\b", r"a\\b", True), ("[ab]*?", "[ab]*?", True),
        ("a", "[ab]*?", False), ("a\nb", "a%", True), ("", "", True), ("a", "", False), ("A", "a", False),
    ],
)  # fmt: skip
def test_patterns_are_those_of_sql(name: str, pattern: str, matches: bool) -> None:
    assert like(name, pattern) is matches


def test_a_hostile_pattern_takes_no_time_and_a_long_one_is_refused() -> None:
    assert not like("a" * 255, "%a" * 250 + "%b")
    with pytest.raises(RequestError, match="at most"):
        like("a", "%" * (MAX_GLOB_CHARACTERS + 1))


def test_each_entry_of_sql_info_is_there_with_its_type() -> None:
    everything = sql_info(())
    everything.validate(full=True)
    assert everything.schema == SCHEMA
    numbers = everything.column("info_name").to_pylist()
    assert set(numbers) == set(ENTRIES) >= {*range(9), 100, 101, *range(500, 577)}
    some = sql_info((504, 9999, 3, 504)).to_pylist()
    assert some == [{"info_name": 504, "value": '"'}, {"info_name": 3, "value": True}]
