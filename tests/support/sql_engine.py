"""The SQL engine over a simulated board with files and a recording: `engine_over(folder)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.access.identity import ANYBODY, Identity
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.log import Store, compact
from fastflight.service import Catalog
from fastflight.sources import (
    DeviceFiles,
    FileCache,
    LiveLayouts,
    device_actions,
    device_sources,
    recording_actions,
    recording_source,
)
from fastflight.sources.crashes import Crashes
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.recordings import Recordings
from fastflight.sources.typed_rows import TypedRows
from fastflight.sql.engine import Parameters, SqlEngine
from fastflight.sql.process import SqlLimits
from fastflight.sql.tables import Tables
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch

CSV = b"t,v\n1,10.5\n2,20.5\n3,30.5\n"
JSONL = b'{"t": 1, "name": "a"}\n{"t": 3, "name": "c"}\n'
# The time of the first recorded row, and between two rows.
FIRST_NS, STEP_NS = 1_750_000_000_000_000_000, 1_000_000_000
RECORDED = 1000
# The row without a time.
WAITED_ROW = 3


@dataclass
class Sql:
    """The engine, and the folder of the board `demo`."""

    engine: SqlEngine
    folder: Path
    inventory: Inventory
    cache: FileCache

    def rows(self, query: str, parameters: Parameters = None, identity: Identity = ANYBODY) -> list[dict[str, Any]]:
        """The rows of a query's result."""
        rows: list[dict[str, Any]] = self.table(query, parameters, identity).to_pylist()
        return rows

    def table(self, query: str, parameters: Parameters = None, identity: Identity = ANYBODY) -> pa.Table:
        reading = self.engine.execute(query, identity, parameters)
        return pa.Table.from_batches([batch for batches in reading for batch in batches], reading.schema)

    def summary(self, query: str) -> Mapping[str, Any]:
        """What is said besides the rows of a query's result."""
        reading = self.engine.execute(query, ANYBODY)
        for _ in reading:
            pass
        return reading.summary()

    def explained(self, query: str) -> dict[str, str]:
        """What `explain analyze` says, by table."""
        found = self.rows(f"explain analyze {query}")
        return {row["explain_key"]: row["explain_value"] for row in found}


def record(folder: Path, name: str = "demo", rows: int = RECORDED, compacted: int = 0) -> None:
    """Store a recording of one row a second, of which the first rows are compacted."""
    chunks = [
        Chunk(n, FIRST_NS + n * STEP_NS, "rx" if n % 10 else "tx", b"line %d\n" % n, waited=n == WAITED_ROW)
        for n in range(rows)
    ]
    with Store(folder) as store:
        log = store.open(name)
        for part in (chunks[:compacted], chunks[compacted:]):
            if part:
                compact(store, file_bytes=0, least=1)
                log.append(log_batch(part, {})).result()


@contextmanager
def engine_over(
    folder: Path, limits: SqlLimits | None = None, options: str = "", compacted: int = 0, device: str = "demo"
) -> Iterator[Sql]:
    board = folder / "board"
    (board / "logs").mkdir(parents=True)
    (board / "a.csv").write_bytes(CSV)
    (board / "logs" / "b.jsonl").write_bytes(JSONL)
    (board / "bad.arrow").write_bytes(b"no Arrow at all")
    record(folder / "recordings", device, compacted=compacted)
    with ExitStack() as parts:
        shards = parts.enter_context(Shards(1))
        urls = {device: f"sim:?files={board}&telemetry=0{options}", "other": "sim:?telemetry=0"}
        inventory = parts.enter_context(Inventory(urls, shards=shards))
        recordings = Recordings(folder / "recordings", inventory)
        parts.callback(recordings.close)
        cache = FileCache(folder / "cache")
        files = DeviceFiles(inventory, cache)
        catalog = Catalog()
        typed = TypedRows(recordings.log, folder=recordings.folder)
        layouts = LiveLayouts(recorded=typed.recognised)
        sources = device_sources(inventory, device_files=files, layouts=layouts)
        for source in (*sources, recording_source(recordings, typed)):
            catalog.add(source)
        authority = Authority(inventory.names, recordings.names)
        crashes = Crashes(inventory, KeptValues(lambda: None)).action()
        actions = Actions([*device_actions(inventory), *recording_actions(recordings), crashes], authority)
        has_live = lambda name: layouts.has_table(inventory.device(name))  # noqa: E731
        tables = Tables(catalog, actions, authority, files, recordings.log, typed, has_live)
        engine = SqlEngine(tables, limits, recordings.folder)
        parts.callback(engine.close)
        sql = Sql(engine, board, inventory, cache)
        sql.rows("from fastflight.files")  # opens the boards: what stays open is not a test's
        yield sql
