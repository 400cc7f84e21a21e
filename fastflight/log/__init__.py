"""The durable batch log that recordings are kept in.

    with Store(folder) as store:
        log = store.open("weather", schema)          # a column `time`: timestamp[us, UTC]
        log.append(batch).result()                   # kept, whatever happens next
        for item in log.read(Range(from_seq=100)):   # Rows, and Missing where rows are not

`batch_log` is the contract, which a replicated engine can carry too; `Store` is the embedded engine, `AsyncStore` the
same on an event loop, `StoreReader` reads beside a writer, `FolderOwners` says who has which device.
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
