"""What the log under the recordings moves, beside a plain file that moves the same bytes.

Batches of chunks as a recorder makes them go into a log that syncs every 100 ms, and come out again; the limits are
the same batches as an Arrow stream, written to a plain file that is synced as often, and read from it. Both are read
where the system still has them in memory, so that is what is compared, and no disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastflight.log import NumberedRows, Store

SYNC_MS = 100.0
# Of a fast board whose lot is gathered, and of an ordinary one that prints a row at a time.
CHUNKS = {"chunks of 4 KiB": 4096, "rows of 64 B": 64}
BATCH_BYTES = 256 * 1024
SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("direction", pa.int8()), ("data", pa.binary())])
LOG, PLAIN = "log", "plain file"
RECORD, REPLAY = "record", "replay"


def kept(content_bytes: int, number: int) -> Iterator[dict[str, Any]]:
    """MB/s of `data`, each way, of each kind of batch; which is first turns around with the run's number."""
    for content, size in CHUNKS.items():
        batch = _batch(size)
        batches = [batch] * max(1, content_bytes // BATCH_BYTES)
        with tempfile.TemporaryDirectory(prefix="fastflight-log-") as folder:
            ways = [(LOG, _log), (PLAIN, _plain)]
            for name, measure in ways if number % 2 else reversed(ways):
                recorded, replayed, rows = measure(Path(folder), batches)
                moved = len(batches) * BATCH_BYTES / 1e6
                wrong = rows != batch.num_rows * len(batches)
                for work, seconds in ((RECORD, recorded), (REPLAY, replayed)):
                    yield {
                        "run": number, "content": content, "server": name, "work": work, "mbps": moved / seconds,
                        "error": f"{rows} rows came back" if wrong else "",
                    }  # fmt: skip


def _batch(size: int) -> pa.RecordBatch:
    count = BATCH_BYTES // size
    data = [os.urandom(size) for _ in range(count)]
    now = time.time_ns() // 1000
    return pa.record_batch([[now] * count, [0] * count, data], schema=SCHEMA)


def _log(folder: Path, batches: Sequence[pa.RecordBatch]) -> tuple[float, float, int]:
    with Store(folder / "log", sync_ms=SYNC_MS) as store:
        log = store.open("board", SCHEMA)
        began = time.perf_counter()
        tickets = [log.append(batch) for batch in batches]
        for ticket in tickets:
            ticket.result()
        written = time.perf_counter()
        rows = sum(item.batch.num_rows for item in log.read() if isinstance(item, NumberedRows))
        return written - began, time.perf_counter() - written, rows


def _plain(folder: Path, batches: Sequence[pa.RecordBatch]) -> tuple[float, float, int]:
    path = folder / "plain.arrows"
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file, pa.ipc.new_stream(file, SCHEMA) as stream:
        synced = began
        for batch in batches:
            stream.write_batch(batch)
            if time.perf_counter() - synced >= SYNC_MS / 1000:
                os.fsync(file.fileno())
                synced = time.perf_counter()
        os.fsync(file.fileno())
    written = time.perf_counter()
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        rows = sum(batch.num_rows for batch in reader)
    return written - began, time.perf_counter() - written, rows
