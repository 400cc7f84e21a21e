"""A server that says anything while a file or a folder is copied from it: nothing lands outside of the folder.

What arrived whole is in its place, what did not is not, and no part of it is left behind.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from fastflight.client import answers
from fastflight.client.server_board import ServerBoard
from fastflight.client.stream import RowStream
from fastflight.errors import DeviceError, FastFlightError
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.varied_json import said

HERE = "grpc://127.0.0.1:1"
CONTENT = {"a.txt": b"hello", "lib/b.py": b"x=1\n", "empty": b""}
# What a device may call its files.
NAMES = (
    "../out", "/etc/passwd", "..", ".", "", "lib/../../out", "a\0b", "x" * 300, "lib", "lib/b.py/c", "a\\b", "a.txt ",
    "\ud800", "LIB/B.PY", "a.txt.part", ".fastflight-0.part",
)  # fmt: skip
# In memory, where there is such a folder: what is synced to a disk takes longer than all else.
MEMORY = Path("/dev/shm")
_folder: list[Path] = []


@contextmanager
def folder() -> Iterator[None]:
    """A folder for all executions."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as made:
        _folder[:] = [Path(made)]
        yield


class FuzzedServer:
    """A `ServerConnection` to a server whose every word the bytes may change."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self.names = {name: self._named(name) for name in CONTENT}

    def _named(self, name: str) -> str:
        choice = self._material.byte()
        return NAMES[choice % len(NAMES)] if choice >= 0xC0 else name

    def _told(self, *usual: Any) -> Any:
        if not self._material.byte() & 1:
            return usual[0]
        return next(iter(answers.results_of([said(self._material, usual)], HERE)), None)

    def act(self, name: str, **body: Any) -> list[Any]:
        if self._material.byte() >= 0xE0:
            raise DeviceError("it cannot")
        entries = [self._entry(path, content) for path, content in CONTENT.items()]
        return answers.results_of([json.dumps(self._told(each)).encode() for each in entries], HERE)

    def act_once(self, name: str, **body: Any) -> dict[str, Any]:
        return answers.single([self._told({**self._entry("a.txt", CONTENT["a.txt"]), "modified": None})], name, HERE)

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        digest = {"algorithm": "sha256", "digest": hashlib.sha256(content).hexdigest()}
        return {"path": f"/data/{self.names[path]}", "kind": "file", "size": len(content), **digest}

    def stream(self, request: Any) -> RowStream:
        rows: list[dict[str, Any]]
        if request.type == "device.listing":
            rows = [
                {"path": f"/data/{self.names[path]}", "kind": "file", "size": len(content), "modified": None}
                for path, content in CONTENT.items()
            ]
        elif request.type == "device.tree":
            wanted = {self.names[path]: content for path, content in CONTENT.items()}
            rows = [{"path": path, "offset": 0, "data": wanted.get(path, b"")} for path in request.files or ()]
        else:
            rows = [{"offset": 0, "data": CONTENT["a.txt"][request.offset :]}]
        for row in rows:
            choice, key = self._material.byte(), self._material.pick(list(row))
            if choice >= 0xF0:
                row[key] = {str: self._material.pick(NAMES), int: choice - 0xF5, bytes: b"other"}.get(type(row[key]))
        whole = hashlib.sha256(b"".join(row.get("data") or b"" for row in rows)).hexdigest()
        if self._material.byte() >= 0xF0 and rows:
            rows = [{key: value for key, value in row.items() if key != list(row)[-1]} for row in rows]
        try:
            batch = pa.RecordBatch.from_pylist(rows)
        except (pa.ArrowException, UnicodeError):
            batch = pa.RecordBatch.from_pylist([{"data": b""}])
        last = json.dumps(self._told({"rows": batch.num_rows, "sha256": whole})).encode()
        chunks = [
            SimpleNamespace(data=batch, app_metadata=None),
            SimpleNamespace(data=None, app_metadata=pa.py_buffer(last)),
        ]
        return RowStream(Chunks(batch.schema, chunks), HERE)


class Chunks:
    """Reads as Flight's reader."""

    def __init__(self, schema: pa.Schema, chunks: list[Any]) -> None:
        self.schema = schema
        self._chunks = chunks

    def read_chunk(self) -> Any:
        if not self._chunks:
            raise StopIteration
        return self._chunks.pop(0)

    def cancel(self) -> None:
        self._chunks.clear()


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    (around,) = _folder
    place = around / "copied"
    server: Any = FuzzedServer(material)
    try:
        copied(server, place, kind)
        assert [each.name for each in around.iterdir()] in ([], ["copied"])
        found = [path for path in place.rglob("*") if path.is_file()] if place.exists() else []
        assert not [path for path in found if path.name.startswith(".fastflight-")]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def copied(server: Any, place: Path, kind: int) -> None:
    """One of the copies, to its end."""
    skip_unchanged = bool(kind & 2)
    board = ServerBoard(server, "demo", {})
    try:
        if kind & 1:
            place.mkdir()
            if kind & 4:
                (place / "a.txt.part").write_bytes(CONTENT["a.txt"][:2])
            board.get_file("/data/a.txt", place / "a.txt", resume=bool(kind & 8), skip_unchanged=skip_unchanged)
            assert (place / "a.txt").is_file()
        else:
            done = board.get_tree("/data", place, skip_unchanged=skip_unchanged)
            assert all((place / path).is_file() for path in done.files)
    except FastFlightError as error:
        assert isinstance(str(error), str)


TARGET = Target(
    run,
    seeds=(
        b"\x00",
        b"\x02",
        b"\x01",
        b"\x0d",
        b"\x0b",
        *(bytes([0, 0xC0 + name]) for name in range(len(NAMES))),
        *(bytes([2, 0xC0 + name]) for name in range(0, len(NAMES), 3)),
        b"\x00\x00\x00\x00\xf0\x00\xf1\x01\xf2\x02\xf0\x01\x00\x02\x04\x01\x01\x00",
        b"\x01\x00\x00\x00\x01\x00\x02\x09\x01\x05\x01\x00\x01\x0a\x03",
    ),
    max_bytes=96,
    running=folder,
)
