"""Flight SQL's answers about catalogs, schemas and tables. Their columns are those of Arrow's FlightSql.proto."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from fastflight.access.identity import Identity
from fastflight.protocol.flight_sql import (
    CommandGetCatalogs,
    CommandGetDbSchemas,
    CommandGetTables,
    CommandGetTableTypes,
)
from fastflight.sql.names import CATALOG
from fastflight.sql.tables import TableName, Tables

Command: TypeAlias = CommandGetCatalogs | CommandGetDbSchemas | CommandGetTables | CommandGetTableTypes
_CATALOG = pa.field("catalog_name", pa.string())
_SCHEMA = pa.field("db_schema_name", pa.string())
_TYPE = pa.field("table_type", pa.string(), nullable=False)
CATALOGS = pa.schema([_CATALOG.with_nullable(False)])
DB_SCHEMAS = pa.schema([_CATALOG, _SCHEMA.with_nullable(False)])
TABLE_TYPES = pa.schema([_TYPE])
TABLES = pa.schema([_CATALOG, _SCHEMA, pa.field("table_name", pa.string(), nullable=False), _TYPE])
TABLES_WITH_SCHEMAS = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
# The types of tables: files and recordings, and the tables about the server.
TYPES = ("SYSTEM TABLE", "TABLE")


# Called now and then. It may raise.
Check: TypeAlias = Callable[[], None]


def schema_of(command: Command) -> pa.Schema:
    """Return the schema of the answer."""
    match command:
        case CommandGetCatalogs():
            return CATALOGS
        case CommandGetDbSchemas():
            return DB_SCHEMAS
        case CommandGetTableTypes():
            return TABLE_TYPES
        case CommandGetTables():
            return TABLES_WITH_SCHEMAS if command.include_schema else TABLES


def answer(command: Command, tables: Tables, identity: Identity, check: Check) -> pa.Table:
    """Return the answer for a caller, sorted. `check` raises when the caller has left."""
    rows = sorted(_rows(command, tables, identity, check))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema_of(command)]
    return pa.table(columns, schema_of(command))


def _rows(command: Command, tables: Tables, identity: Identity, check: Check) -> Iterable[tuple[Any, ...]]:
    match command:
        case CommandGetCatalogs():
            return [(CATALOG,)]
        case CommandGetTableTypes():
            return [(type_,) for type_ in TYPES]
        case CommandGetDbSchemas(catalog, schemas):
            found = tables.schemas(identity, schemas) if catalog in (None, CATALOG) else ()
            return [(CATALOG, schema) for schema in found]
        case CommandGetTables(catalog, schemas, names, types, with_schemas):
            if catalog not in (None, CATALOG) or (types and not {*types} & {*TYPES}):
                return ()
            listed = tables.listing(identity, schemas, names, with_schemas=with_schemas, check=check)
            return [_row(table, with_schemas) for table in listed if not types or table.type in types]


def _row(table: TableName, with_schema: bool) -> tuple[Any, ...]:
    row = (table.catalog, table.device, table.name, table.type)
    return (*row, bytes((table.schema or pa.schema([])).serialize())) if with_schema else row
