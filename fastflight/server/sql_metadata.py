"""Flight SQL's answers about catalogs, schemas and tables. Their columns are those of Arrow's FlightSql.proto.

In a pattern `%` means any characters, `_` means one, and a backslash before either means the character itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.protocol.flight_sql import (
    CommandGetCatalogs,
    CommandGetDbSchemas,
    CommandGetTables,
    CommandGetTableTypes,
)
from fastflight.service.requests import MAX_GLOB_CHARACTERS

Command: TypeAlias = CommandGetCatalogs | CommandGetDbSchemas | CommandGetTables | CommandGetTableTypes
_CATALOG = pa.field("catalog_name", pa.string())
_SCHEMA = pa.field("db_schema_name", pa.string())
_TYPE = pa.field("table_type", pa.string(), nullable=False)
CATALOGS = pa.schema([_CATALOG.with_nullable(False)])
DB_SCHEMAS = pa.schema([_CATALOG, _SCHEMA.with_nullable(False)])
TABLE_TYPES = pa.schema([_TYPE])
TABLES = pa.schema([_CATALOG, _SCHEMA, pa.field("table_name", pa.string(), nullable=False), _TYPE])
TABLES_WITH_SCHEMAS = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
# A part of a pattern: an escaped character, a wildcard, or a character that is special in a glob.
_PART = re.compile(r"\\([%_\\])|([%_])|([*?\[])")


class Table(Protocol):
    """A table that the caller may read. Its `schema` has its columns; None if they were not asked for, or not known."""

    @property
    def catalog(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def schema(self) -> pa.Schema | None: ...


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


def answer(command: Command, tables: Iterable[Table]) -> pa.Table:
    """Return the answer, sorted, without rows that occur twice. `tables` are all that the caller may read."""
    rows = {row: None for table in tables if (row := _row(command, table)) is not None}
    columns = zip(*sorted(rows), strict=True) if rows else [()] * len(schema_of(command))
    return pa.table([list(column) for column in columns], schema_of(command))


def _row(command: Command, table: Table) -> tuple[Any, ...] | None:
    """Return the row for `table`; None if the command does not ask for it."""
    match command:
        case CommandGetCatalogs():
            return (table.catalog,)
        case CommandGetTableTypes():
            return (table.type,)
        case CommandGetDbSchemas(catalog, schemas):
            wanted = catalog in (None, table.catalog) and like(table.device, schemas)
            return (table.catalog, table.device) if wanted else None
        case CommandGetTables(catalog, schemas, names, types):
            if not (catalog in (None, table.catalog) and like(table.device, schemas) and like(table.name, names)):
                return None
            if types and table.type not in types:
                return None
            row = (table.catalog, table.device, table.name, table.type)
            return (*row, _serialized(table)) if command.include_schema else row


def _serialized(table: Table) -> bytes:
    return bytes((pa.schema([]) if table.schema is None else table.schema).serialize())


def like(name: str, pattern: str | None) -> bool:
    """Whether a name matches a pattern of SQL; None matches every name."""
    if pattern is None:
        return True
    if len(pattern) > MAX_GLOB_CHARACTERS:
        raise RequestError(f"a pattern has at most {MAX_GLOB_CHARACTERS} characters", where="filter pattern")
    return fnmatchcase(name, _PART.sub(_as_glob, pattern))


def _as_glob(part: re.Match[str]) -> str:
    escaped, wildcard, special = part.groups()
    if wildcard:
        return "*" if wildcard == "%" else "?"
    return f"[{special}]" if special else str(escaped)
