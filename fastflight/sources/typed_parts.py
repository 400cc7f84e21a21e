"""The folder of typed rows of one recording: a Parquet file for each Parquet file of its traffic, and the layout.

The name of a file has the CRC-32 of its bytes, and its metadata what it was made from. A file that is damaged, or was
made from something else, counts as missing, so no write is synced. A write that fails is left out.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.files import replacement
from fastflight.log.disk import FILE_MODE, FOLDER_MODE
from fastflight.sources.session_lines import SessionLine

LAYOUT = "layout.json"
# Files of another version are made again: lines were parsed in another way.
VERSION = 2
_METADATA = b"fastflight.typed"


@dataclass(frozen=True, slots=True)
class TypedPart:
    """The rows of the lines that end in one file of traffic. `unfinished` goes on after it."""

    file: Path
    schema: pa.Schema
    unfinished: SessionLine
    summary: Mapping[str, Any]


class PartFolder:
    """The files of one recording. One thread at a time uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The names of files whose bytes were verified.
        self._intact: set[str] = set()

    def layout(self) -> Any:
        """Return the layout that was stored; None if there is none that can be read."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self._path / LAYOUT).read_bytes())
        return None

    def store_layout(self, layout: Mapping[str, Any]) -> None:
        """Store a layout."""
        self._write(LAYOUT, json.dumps(layout).encode())

    def find(self, traffic: Path, layout: Mapping[str, Any], began: SessionLine | None) -> TypedPart | None:
        """Return the rows of a file of traffic; None if they are not there.

        `began` is the line that goes on in it. None if that is not known any more: it was known when they were stored.
        """
        for file in self._path.glob(f"{traffic.stem}.*.parquet"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError, pa.ArrowException):
                if file.name not in self._intact and file.name.split(".")[1] != _crc(file.read_bytes()):
                    continue
                self._intact.add(file.name)
                schema = pq.read_schema(file)
                found = json.loads(schema.metadata[_METADATA])
                is_same = found["made from"] == _made_from(traffic, layout)
                if is_same and (began is None or found["began"] == _as_json(began)):
                    return TypedPart(file, schema.remove_metadata(), _line(found["unfinished"]), found["summary"])
        return None

    def store(
        self,
        traffic: Path,
        layout: Mapping[str, Any],
        began: SessionLine,
        unfinished: SessionLine,
        rows: pa.Table,
        summary: Mapping[str, Any],
    ) -> TypedPart | None:
        """Store the rows of a file of traffic. None if that fails."""
        with contextlib.suppress(OSError):
            found = {"made from": _made_from(traffic, layout), "summary": summary}
            found |= {"began": _as_json(began), "unfinished": _as_json(unfinished)}
            sink = pa.BufferOutputStream()
            pq.write_table(rows.replace_schema_metadata({_METADATA: json.dumps(found)}), sink, compression="zstd")
            data = sink.getvalue().to_pybytes()
            for file in self._path.glob(f"{traffic.stem}.*"):
                file.unlink()
            self._write(f"{traffic.stem}.{_crc(data)}.parquet", data)
        return self.find(traffic, layout, began)

    def keep(self, files: Collection[Path]) -> None:
        """Remove all files of rows but these, and what writes that were killed have left."""
        with contextlib.suppress(OSError):
            for file in {*self._path.glob("*.parquet"), *self._path.glob(".*")}.difference(files):
                self._intact.discard(file.name)
                file.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            with replacement(self._path / name, FILE_MODE, sync=False) as file:
                file.write(data)


def _crc(data: bytes) -> str:
    return f"{crc32(data):08x}"


def _made_from(traffic: Path, layout: Mapping[str, Any]) -> Any:
    known = traffic.stat()
    return json.loads(json.dumps([VERSION, traffic.name, known.st_size, known.st_mtime_ns, layout]))


def _as_json(line: SessionLine) -> list[Any]:
    return [line.seq, line.time_ns, base64.b64encode(line.data).decode(), line.cut]


def _line(values: list[Any]) -> SessionLine:
    seq, time_ns, data, cut = values
    return SessionLine(seq, time_ns, base64.b64decode(data), cut)
