"""The durable batch log that stores recordings.

    with Store(folder) as store:
        log = store.open("weather", schema)          # the schema has a column `time`: timestamp[us, UTC]
        log.append(batch).result()                   # returns when the rows are durable
        for item in log.read(Range(from_seq=100)):   # NumberedRows, and Missing where rows are absent

`batch_log` defines the interface, which a replicated engine can implement too. `Store` is the embedded engine.
`AsyncStore` is the same on an event loop. `StoreReader` reads a folder while another process writes it. `FolderOwners`
records which owner has which device.
"""

from fastflight.log.aio import AsyncLog, AsyncStore
from fastflight.log.batch_log import (
    EVERYTHING,
    Appended,
    AsyncBatchLog,
    BatchLog,
    BatchStore,
    Damage,
    Extent,
    Lease,
    LogStatistics,
    Missing,
    NumberedRows,
    Owners,
    Range,
    Retention,
    StoreStatistics,
    Ticket,
)
from fastflight.log.compaction import compact
from fastflight.log.owners import FolderOwners
from fastflight.log.store import Log, Store
from fastflight.log.viewer import LogReader, StoreReader

__all__ = [
    "EVERYTHING",
    "Appended",
    "AsyncBatchLog",
    "AsyncLog",
    "AsyncStore",
    "BatchLog",
    "BatchStore",
    "Damage",
    "Extent",
    "FolderOwners",
    "Lease",
    "Log",
    "LogReader",
    "LogStatistics",
    "Missing",
    "NumberedRows",
    "Owners",
    "Range",
    "Retention",
    "Store",
    "StoreReader",
    "StoreStatistics",
    "Ticket",
    "compact",
]
