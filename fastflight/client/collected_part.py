"""A part of a log that is stored on this computer: as the board had it, or converted to Parquet.

Either way its bytes can be compared with those of a file on the board, by a digest that the board computes. A Parquet
file has the size and the digests of the bytes in its metadata.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Protocol

from fastflight.client.local_files import local_digest
from fastflight.errors import DataError, IncompleteWarning

PARQUET = ".parquet"
# The key of the metadata of a Parquet file that has the size and the digests of the part.
ORIGIN_KEY = "fastflight.collected"
ALGORITHMS = ("sha256", "crc32")


class StoredPart(Protocol):
    """A stored part. `digest(algorithm, limit)` is that of its first `limit` bytes; empty if it is not known.

    `can_grow`: more bytes can be appended to it.
    """

    can_grow: bool

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int: ...

    def digest(self, algorithm: str, limit: int) -> str: ...


class PlainPart:
    """A part as the board had it."""

    can_grow = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def digest(self, algorithm: str, limit: int) -> str:
        return local_digest(self.path, algorithm, limit) if algorithm in ALGORITHMS else ""


class ParquetPart:
    """A part that has become Parquet. Its digest is known only for all of its bytes."""

    can_grow = False

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq  # not at the top: parts that stay as they are need no Arrow

        self.path = path
        try:
            origin = json.loads((pq.read_metadata(path).metadata or {})[ORIGIN_KEY.encode()])
            self.size = int(origin["bytes"])
            self._digests = {name: str(origin[name]) for name in ALGORITHMS}
        except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
            raise DataError(
                "this file was not written by a collection", where=str(path), hint="Move it to another folder"
            ) from error

    def digest(self, algorithm: str, limit: int) -> str:
        return self._digests.get(algorithm, "") if limit == self.size else ""


def as_parquet(source: Path, target: Path) -> None:
    """Write the rows of a part as a Parquet file, durably. `DataError` if one does not fit.

    An `IncompleteWarning` tells of what was read with a doubt, as do the metadata of the file.
    """
    # Not at the top: parts that stay as they are need no Arrow.
    from fastflight.client.rows import open_rows
    from fastflight.client.saving import SavedFile
    from fastflight.service.requests import DeviceFile
    from fastflight.tables.summary import one_line

    origin = {name: local_digest(source, name) for name in ALGORITHMS}
    request = DeviceFile(device="local", path=f"/{target.with_suffix('.arrow').name}")
    _, rows = open_rows(request, source)
    with SavedFile(target, rows.schema, sync=True) as saved:
        for batch in rows.batches:
            saved.write(batch)
        saved.add_summary(rows.summary)
        saved.add_metadata({ORIGIN_KEY: json.dumps({"bytes": source.stat().st_size, **origin})})
    if line := one_line(rows.summary):
        warnings.warn(f"{target}: {line}", IncompleteWarning, stacklevel=2)
