"""Measures the recording log, compared with a plain file of the same bytes.

Batches of chunks, as a recorder makes them, are appended to a log that syncs every 100 ms, and read again. The limit is
the same batches as an Arrow stream in a plain file, synced as often. When both are read, the system still has them in
memory, so the suite does not measure a disk.
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
# The output of a fast board, gathered in large chunks, and of an ordinary board, which prints a row at a time.
CHUNKS = {"chunks of 4 KiB": 4096, "rows of 64 B": 64}
BATCH_BYTES = 256 * 1024
SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("direction", pa.int8()), ("data", pa.binary())])
LOG, PLAIN = "log", "plain file"
RECORD, REPLAY = "record", "replay"


def kept(content_bytes: int, number: int) -> Iterator[dict[str, Any]]:
    """Yield MB/s of recording and replay, for each kind of batch. Log and file swap their order with each run."""
    for content, size in CHUNKS.items():
        batch = _batch(size)
        batches = [batch] * max(1, content_bytes // BATCH_BYTES)
        with tempfile.TemporaryDirectory(prefix="fastflight-log-") as folder:
            ways = [(LOG, _log), (PLAIN, _plain)]
            for name, measure in ways if number % 2 else reversed(ways):
                recorded, replayed, rows = measure(Path(folder), batches)
                moved = len(batches) * BATCH_BYTES / 1e6
                written_rows = batch.num_rows * len(batches)
                wrong = rows != written_rows
                for work, seconds in ((RECORD, recorded), (REPLAY, replayed)):
                    yield {
                        "run": number, "content": content, "server": name, "work": work, "mbps": moved / seconds,
                        "error": f"{rows} rows were read, not {written_rows}" if wrong else "",
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
