"""A folder of Parquet files as one table. Clients may read the files in parallel.

PARQUET_FOLDER=sales fastflight serve --source parquet_folder:SALES
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from fastflight import Estimate, Source, SourceRequest
from fastflight.errors import RequestError, nearest


class SalesRequest(SourceRequest):
    """All files, or one of them."""

    type = "sales"
    file: str | None = None
    columns: tuple[str, ...] | None = None


def files() -> dict[str, Path]:
    return {path.name: path for path in sorted(Path(os.environ["PARQUET_FOLDER"]).glob("*.parquet"))}


def dataset(request: SalesRequest) -> ds.Dataset:
    found = files()
    if request.file is not None and request.file not in found:
        raise RequestError("no such file", where=request.file, hint=nearest(request.file, found))
    opened = ds.dataset([str(path) for name, path in found.items() if request.file in (None, name)])
    for column in request.columns or ():
        if column not in opened.schema.names:
            raise RequestError("no such column", where=column, hint=nearest(column, opened.schema.names))
    return opened


def read(request: SalesRequest) -> Iterator[pa.RecordBatch]:
    yield from dataset(request).to_batches(columns=request.columns and list(request.columns))


def describe(request: SalesRequest) -> Estimate:
    opened = dataset(request)
    names = request.columns or opened.schema.names
    return Estimate(pa.schema([opened.schema.field(name) for name in names]), rows=opened.count_rows())


def parts(request: SalesRequest) -> list[SalesRequest]:
    names = [request.file] if request.file else list(files())
    return [request.model_copy(update={"file": name}) for name in names] or [request]


SALES = Source(SalesRequest, read=read, describe=describe, parts=parts)
