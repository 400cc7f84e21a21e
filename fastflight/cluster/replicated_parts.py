"""The compacted parts of shared recordings, as the embedded engine reads its own (`fastflight.log.compacted`).

A part has the messages of all logs between two sequence numbers of the stream, which are in its name. It is valid once
its index file is in the bucket, which is written last. `PartDisk` is the bucket as a folder, so that files are found,
verified and repaired by the same code. If an index file is lost, the part is valid as soon as its messages are gone.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

from fastflight.cluster.log_stream import LogStream
from fastflight.cluster.part_bucket import PartBucket, PartObject
from fastflight.log.compacted import INDEX_NAME, PARQUET_NAME, Compacted, find_compacted, index_name
from fastflight.log.reading import retry_missing

T = TypeVar("T")


class Call(Protocol):
    """Runs a coroutine on the loop of the connection, and waits for its result in the calling thread."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class PartFile:
    """An object of the bucket as a file to read."""

    def __init__(self, bucket: PartBucket, call: Call, part: PartObject) -> None:
        self._bucket, self._call, self._part = bucket, call, part

    def read(self, offset: int, size: int) -> bytes:
        """As `File.read`. `OSError` if bytes are missing on all nodes, `FileNotFoundError` if the object is gone."""
        data = self._call(self._bucket.read(self._part, offset, size))
        if data is not None:
            return data
        if self._call(self._bucket.find(self._part.name)) != self._part:
            raise FileNotFoundError(errno.ENOENT, "the object is gone", self._part.name)
        raise OSError(errno.EIO, "a chunk is missing", self._part.name)

    def size(self) -> int:
        return self._part.size

    def close(self) -> None:
        return

    def write(self, _: object) -> NoReturn:
        _read_only()

    def truncate(self, _: int) -> NoReturn:
        _read_only()

    def sync(self) -> NoReturn:
        _read_only()


class PartDisk:
    """The bucket as a `Disk` to read, for any thread but the loop's."""

    def __init__(self, bucket: PartBucket, call: Call) -> None:
        self._bucket, self._call = bucket, call

    def names(self) -> list[str]:
        return self._call(self._bucket.names())

    def open(self, name: str, *, writing: bool = False) -> PartFile:
        if writing:
            _read_only()
        part = self._call(self._bucket.find(name))
        if part is None:
            if self._call(self._bucket.is_listed(name)):
                raise OSError(errno.EIO, "its entry is damaged", name)
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return PartFile(self._bucket, self._call, part)

    def create(self, _: str) -> NoReturn:
        _read_only()

    def rename(self, _: str, __: str) -> NoReturn:
        _read_only()

    def remove(self, name: str) -> None:
        self._call(self._bucket.remove(name))

    def remove_before(self, name: str, seq: int) -> None:
        """Remove a file, unless it was stored at this sequence number or later."""
        self._call(self._bucket.remove(name, seq))

    def sync_folder(self) -> None:
        return


class ReplicatedParts:
    """The valid parts. Any thread but the loop's may use it."""

    def __init__(self, bucket: PartBucket, stream: LogStream, call: Call) -> None:
        self.bucket = bucket
        self.disk = PartDisk(bucket, call)
        self._stream = stream
        self._call = call
        self._lock = threading.Lock()
        self._known: dict[str, Compacted] = {}

    def all(self) -> list[Compacted]:
        """Return the valid parts, in the order of their messages. `StorageError` if one cannot be read.

        Those that were read before are not read again.
        """
        return retry_missing(self._all)

    def _all(self) -> list[Compacted]:
        names = self.disk.names()
        found, unindexed = self._grouped(names)
        if unindexed:
            # Of a part whose index is lost, or of an upload that is not finished, and whose messages are there.
            first = self._call(self._stream.bounds()).first
            found |= {index: files for index, files in unindexed.items() if _last_of(index) < first}
        with self._lock:
            known = {index: part for index, part in self._known.items() if index in found}
        fresh = [name for index, files in found.items() if index not in known for name in files]
        for part in find_compacted(self.disk, fresh):
            known[part.name] = part
        with self._lock:
            self._known = {**known}
        return sorted(known.values(), key=lambda part: part.ordinal)

    def unfinished(self) -> list[str]:
        """Return the files without an index whose messages are still in the stream: leftovers of an upload."""
        _, unindexed = self._grouped(self.disk.names())
        first = self._call(self._stream.bounds()).first
        return [name for index, files in unindexed.items() if _last_of(index) >= first for name in files]

    def remove(self, part: Compacted) -> None:
        """Delete a part: its index first, so that it is not valid without all of its files."""
        for name in part.files:
            self.disk.remove(name)

    def _grouped(self, names: list[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the names of each part's files, under the name of its index. Those without an index are separate."""
        files: dict[str, list[str]] = {}
        for name in names:
            if match := PARQUET_NAME.fullmatch(name) or INDEX_NAME.fullmatch(name):
                files.setdefault(index_name(int(match[1]), int(match[2])), []).append(name)
        indexed = {index: each for index, each in files.items() if index in each}
        return indexed, {index: each for index, each in files.items() if index not in each}


def _last_of(index: str) -> int:
    match = INDEX_NAME.fullmatch(index)
    assert match is not None
    return int(match[2])


def _read_only() -> NoReturn:
    raise OSError(errno.EROFS, "parts are read only")
