"""The durable batch log that stores recordings.

    with Store(folder) as store:
        log = store.open("weather", schema)          # the schema has a column `time`: timestamp[us, UTC]
        log.append(batch).result()                   # returns when the rows are durable
        for item in log.read(Range(from_seq=100)):   # NumberedRows, and Missing where rows are absent

`batch_log` defines the interface, which a replicated engine can implement too. `Store` is the embedded engine; on an
event loop, `await log.aappend(batch)` and await the ticket that it returns. `StoreReader` reads a folder while another
process writes it.
"""

from fastflight.log.batch_log import (
    EVERYTHING,
    Appended,
    BatchLog,
    BatchStore,
    Damage,
    Extent,
    LogStatistics,
    Missing,
    NumberedRows,
    Range,
    Retention,
    StoreStatistics,
    Ticket,
)
from fastflight.log.compaction import compact
from fastflight.log.store import Log, Store
from fastflight.log.viewer import LogReader, StoreReader

__all__ = [
    "EVERYTHING",
    "Appended",
    "BatchLog",
    "BatchStore",
    "Damage",
    "Extent",
    "Log",
    "LogReader",
    "LogStatistics",
    "Missing",
    "NumberedRows",
    "Range",
    "Retention",
    "Store",
    "StoreReader",
    "StoreStatistics",
    "Ticket",
    "compact",
]
