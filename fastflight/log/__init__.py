"""The durable batch log that stores recordings.

    with Store(folder) as store:
        log = store.open("weather")                  # its rows have the columns of `LOG_SCHEMA`
        log.append(batch).result()                   # returns when the rows are durable
        for item in log.read(Range(from_seq=100)):   # NumberedRows, and Gap where rows are absent

A store holds logs by name. The rows of a log are numbered from 0 in the order of appending; a batch of n rows takes n
numbers. Each number is used once. Rows that were lost before the append, deleted by retention, or damaged on the disk
leave a hole, which reading reports as `Gap`. Every row has a time (the column `time`, us UTC); times need not ascend.

`append` returns a `Ticket` at once. The rows are durable when the ticket is done, and not before. `Store.append` takes
rows of many logs at once. `StoreReader` reads a folder while another process writes it.
"""

from fastflight.gap import Gap
from fastflight.log.compaction import compact
from fastflight.log.log import Log, NewRows
from fastflight.log.reading import LogReader, StoreReader
from fastflight.log.retention import Retention
from fastflight.log.store import Store
from fastflight.log.values import (
    EVERYTHING,
    LOG_SCHEMA,
    Extent,
    LogStatistics,
    NumberedRows,
    Range,
    StoredRows,
)
from fastflight.log.writer import Ticket

__all__ = [
    "EVERYTHING",
    "LOG_SCHEMA",
    "Extent",
    "Gap",
    "Log",
    "LogReader",
    "LogStatistics",
    "NewRows",
    "NumberedRows",
    "Range",
    "Retention",
    "Store",
    "StoreReader",
    "StoredRows",
    "Ticket",
    "compact",
]
