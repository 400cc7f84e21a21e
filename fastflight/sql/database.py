"""DuckDB in a worker process: a database that is used for many queries, and the tables of the current one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from fastflight.sql.names import CATALOG, quoted

SETTINGS = (
    "set TimeZone = 'UTC'",
    # A query reads most bytes once, and the system has the files in its own cache.
    "set enable_external_file_cache = false",
    "set enable_external_access = false",
    "set lock_configuration = true",
)


class ArrowFile:
    """An Arrow stream in the folder, as DuckDB reads it. Each reading begins anew."""

    def __init__(self, name: str) -> None:
        self._name = name
        with pa.OSFile(name) as file, pa.ipc.open_stream(file) as stream:
            self.schema = stream.schema

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.ipc.open_stream(pa.OSFile(self._name)).__arrow_c_stream__(requested_schema)


class Database:
    """DuckDB, which can read the files in `folder`, the current one, and nothing else. Opening it takes 15 ms.

    Each query has a catalog of its own in it.
    """

    def __init__(self, settings: Mapping[str, str], folder: Path) -> None:
        self.connection = duckdb.connect(":memory:", config=dict(settings))
        name = str(folder).replace("'", "''")
        self.connection.execute(f"set allowed_directories = ['{name}']")
        for setting in SETTINGS:
            self.connection.execute(setting)
        self._registered: list[str] = []
        self._attach()

    def add(self, path: Sequence[str], files: Mapping[str, Any]) -> None:
        """Make a table, a view of files in the folder: lists of `parquet` and `arrow` files, each with a query."""
        selects = [f"from read_parquet({names}) {select}" for names, select in files["parquet"]]
        for name, select in files["arrow"]:
            rows = f"rows_{secrets.token_hex(8)}"  # no query can guess it
            self.connection.register(rows, ArrowFile(name))
            self._registered.append(rows)
            selects.append(f"from temp.main.{rows} {select}")
        self._make("view", path, " union all ".join(selects))

    def add_name(self, schema: str, table: str) -> None:
        """Make a table without rows, for the standard's views of all tables."""
        self._make("table", [CATALOG, schema, table], "select 1")

    def table(self, path: Sequence[str]) -> duckdb.DuckDBPyRelation:
        """Return all rows of a table, which are not read yet."""
        return self.connection.sql(f"from {'.'.join(map(quoted, path))}")

    def _make(self, kind: str, path: Sequence[str], query: str) -> None:
        catalog, schema, table = map(quoted, path)
        self.connection.execute(f"create schema if not exists {catalog}.{schema}")
        self.connection.execute(f"create {kind} if not exists {catalog}.{schema}.{table} as {query}")

    def renew(self) -> None:
        """Forget the tables of the query before."""
        self.connection.execute("use memory")
        self.connection.execute(f"detach {CATALOG}")
        registered, self._registered = self._registered, []
        for name in registered:
            self.connection.unregister(name)
        self._attach()

    def _attach(self) -> None:
        self.connection.execute(f"attach ':memory:' as {CATALOG}")

    def close(self) -> None:
        self.connection.close()
