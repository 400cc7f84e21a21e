"""Settings of SQL and of the cache of boards' files: the table `[sql]` of a fleet file.

[sql]                          # may be left out
memory = "512MB"               # of one query
seconds = 60
cache = "cache"                # relative to the fleet file
cache_bytes = "1GB"
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fastflight.app.access_settings import resolve_path
from fastflight.app.recording_settings import bytes_of
from fastflight.sources.file_cache import DEFAULT_BYTES
from fastflight.sql.process import SqlLimits

# DuckDB needs some for its own tables.
MIN_MEMORY_BYTES = 32 << 20
# More threads than cores make no query faster, and each of them takes memory.
MAX_THREADS = 256
# A day: in effect no limit.
MAX_QUERY_SECONDS = 86_400
MAX_QUERIES = 1024
# A batch of many rows is as large, and larger batches than the maximum are refused on their way to the client.
MIN_ROW_BYTES = 1 << 20
MAX_ROW_BYTES = 48 << 20
EXAMPLE = 'As in [sql] memory = "512MB", seconds = 60'
DEFAULT = SqlLimits()


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """The limits of queries, and the folder and size of the cache. Without a folder, the cache ends with the server."""

    limits: SqlLimits = DEFAULT
    cache: Path | None = None
    cache_bytes: int = DEFAULT_BYTES


class FleetSql(BaseModel):
    """The table `[sql]` of a fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    memory: Annotated[int, BeforeValidator(bytes_of), Field(ge=MIN_MEMORY_BYTES)] = DEFAULT.memory_bytes
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = DEFAULT.threads
    seconds: Annotated[float, Field(gt=0, le=MAX_QUERY_SECONDS)] = DEFAULT.seconds
    rows: Annotated[int, Field(ge=1)] = DEFAULT.rows
    row_bytes: Annotated[int, BeforeValidator(bytes_of), Field(ge=MIN_ROW_BYTES, le=MAX_ROW_BYTES)] = DEFAULT.row_bytes
    queries: Annotated[int, Field(ge=1, le=MAX_QUERIES)] = DEFAULT.queries
    cache: str | None = None
    cache_bytes: Annotated[int, BeforeValidator(bytes_of), Field(ge=0)] = DEFAULT_BYTES


def sql_settings(table: FleetSql, fleet_folder: Path | None, cache: Path | None) -> SqlSettings:
    """Combine the table of a fleet file, which is in `fleet_folder`, with the option `--cache`, which wins."""
    if cache is None and table.cache is not None:
        cache = resolve_path(fleet_folder or Path(), table.cache, "sql.cache")
    limits = SqlLimits(table.memory, table.threads, table.seconds, table.rows, table.row_bytes, table.queries)
    return SqlSettings(limits, cache, table.cache_bytes)
