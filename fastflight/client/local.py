"""Local files: what is written to a device from one, and what is read from a device into one.

A file is copied byte for byte (format `raw`) where its ending is the device's; where the endings are of two different
tables it is converted by way of record batches. A new local file appears whole, under a temporary name until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from fastflight.client.rows import Rows, rows_of
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile

# Endings that hold tables: asked for one of these, a file of another is converted, never renamed.
TABLE_ENDINGS = (".arrow", ".csv", ".jsonl", ".parquet")
# Bytes of a file per batch: one acknowledgement, and one step of a progress bar, each second of a 115200 baud line.
RAW_BATCH_BYTES = 16 * 1024
RAW_SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])


def opened(request: DeviceFile, source: Any) -> tuple[DeviceFile, Rows]:
    """The rows in `source`, and the request as it has to be sent with them."""
    if not isinstance(source, Path):
        return request, rows_of(source)
    if request.format is None and copied_as_is(source.name, request.path):
        request = request.model_copy(update={"format": "raw"})
    if request.format == "raw":
        return request, _raw_rows(source)
    return request, rows_of(_table_rows(source))


def copied_as_is(local: str, remote: str) -> bool:
    """Whether a file moves between these names without conversion."""
    ends = {ending_of(local), ending_of(remote)}
    return len(ends) == 1 or not ends & set(TABLE_ENDINGS)


def ending_of(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _raw_rows(path: Path) -> Rows:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    return Rows(RAW_SCHEMA, _pieces(path), size)


def _pieces(path: Path) -> Iterator[pa.RecordBatch]:
    offset = 0
    with path.open("rb") as file:
        while data := file.read(RAW_BATCH_BYTES):
            yield pa.record_batch([[offset], [data]], schema=RAW_SCHEMA)
            offset += len(data)


def _table_rows(path: Path) -> Any:
    raise DataError(f"no way to read {path.suffix}")
