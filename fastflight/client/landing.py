"""Stores the files of a device below a local folder.

`local_path` refuses names that lead out of the folder before anything is written. Each file is first written under a
unique temporary name in its final folder, and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fastflight.client.local_file import agrees
from fastflight.client.local_names import board_path, local_path
from fastflight.client.meaning import text, understood, whole
from fastflight.errors import DataError, ProtocolError, RequestError


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file below a folder on a device. The digest is empty if none was requested."""

    size: int
    algorithm: str = ""
    digest: str = ""

    def same(self, local: Path) -> bool:
        """Whether a local file has the same size and digest."""
        here = local.is_file() and not local.is_symlink() and local.stat().st_size == self.size
        return here and agrees(local, self.algorithm, self.digest)


def remote_entries(results: Iterable[Any]) -> list[tuple[str, RemoteEntry]]:
    """Return the results of `file.hash` for a folder: paths on the device, with sizes and digests."""
    with understood("what the server says of its files"):
        return [
            (
                board_path(text(each["path"])),
                RemoteEntry(whole(each["size"]), text(each["algorithm"]), text(each["digest"])),
            )
            for each in results
        ]


class Landed:
    """Writes files to a folder, one after another. A context manager: leaving it completes the last file."""

    def __init__(self, folder: Path, remote: Mapping[str, RemoteEntry]) -> None:
        self._folder = folder
        self._remote = remote
        self._file: BinaryIO | None = None
        self._place = folder
        self._part = folder
        self._size = 0
        self._sha256 = hashlib.sha256()
        # The sha256 digests, received from the server, of the next files.
        self._digests: deque[str] = deque()
        self.path: str = ""
        self.paths: list[str] = []
        self.bytes: int = 0

    def expect(self, digests: Iterable[str]) -> None:
        """Add the sha256 digests of the next files to be completed, in order."""
        self._digests.extend(digests)

    def add(self, path: str, offset: int, data: bytes) -> None:
        """Write the next piece of the current file, or the first piece of another file."""
        if path != self.path or self._file is None:
            self._finish()
            self._begin(path)
        if self._file is None or offset != self._size:
            raise ProtocolError("the pieces of a file do not follow each other", where=path)
        self._file.write(data)
        self._sha256.update(data)
        self._size += len(data)
        self.bytes += len(data)

    def __enter__(self) -> Landed:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        elif self._file is not None:
            self._drop(self._file)
        self._digests.clear()

    def _begin(self, path: str) -> None:
        if path not in self._remote or path in self.paths:
            raise ProtocolError("the server sent a file that was not asked for", where=path)
        place = local_path(self._folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_file():
            raise RequestError("is not a file", where=str(place), hint="Remove it, or copy to another folder")
        self.path, self._place, self._size, self._sha256 = path, place, 0, hashlib.sha256()
        # A short name that does not contain the file's own, which may already have the maximum length.
        self._part = place.with_name(f".fastflight-{secrets.token_hex(8)}.part")
        self._file = self._part.open("xb")

    def _finish(self) -> None:
        if self._file is None:
            return
        file = self._file
        try:
            file.close()
            if self._digests and self._digests.popleft() != self._sha256.hexdigest():
                raise DataError("what arrived is not what the device sent", where=self.path, hint="Try again")
            expected = self._remote[self.path]
            if expected.digest and not agrees(self._part, expected.algorithm, expected.digest):
                raise DataError("the file changed while it was copied", where=self.path, hint="Try again")
            self._part.replace(self._place)
        except BaseException:
            self._drop(file)
            raise
        self._file = None
        self.paths.append(self.path)

    def _drop(self, file: BinaryIO) -> None:
        """Delete the current file. Closing it may fail again on a full disk; that error is ignored."""
        self._file = None
        with contextlib.suppress(OSError):
            file.close()
        self._part.unlink(missing_ok=True)
