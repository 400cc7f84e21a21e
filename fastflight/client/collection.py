"""Collects a log that a board's program appends to: each line is stored once on this computer, then leaves the board.

`Collection.run` renames the log on the board to a part with a number, so that the program begins a new one. It reads
the part, verifies it by the board's digest, stores it durably, and only then removes it from the board.

Whatever is killed, and whenever, the next run continues. What it finds says what to do, without a guess: a part
has the same number on the board and here, and a number is used once.

====================  =====================  ========================================================
on the board          here                   what the next run does
====================  =====================  ========================================================
`log.csv.000007`      nothing, or `7.part`   reads from the end of `.part` on, verifies, stores
`log.csv.000007`      `7.csv`                removes it from the board, if it has not grown
nothing               `7.csv`                converts it to Parquet, if that is asked for
`log.csv`             `7.csv` is the last    renames it to `log.csv.000008`
====================  =====================  ========================================================

The program must open its log for each line that it appends: an open file may not follow a rename.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fastflight.client.answers import Digest, Entry
from fastflight.errors import DataError, FileMissing, RequestError, TransportClosed

# Parts are listed by name: as many digits as ten years of a part every five minutes need.
DIGITS = 7
# Attempts to read a part whose digest is wrong.
ATTEMPTS = 3
PIECE_BYTES = 1 << 20
# Prints the size of a part, and removes the part if that is the given size.
REMOVE = "import os\ns=os.stat({path!r})[6]\nif s=={size}:\n os.remove({path!r})\nprint(s)"


class Board(Protocol):
    """The verbs of a client that a collection needs."""

    def ls(self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False) -> list[Entry]: ...

    def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest: ...

    def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None: ...

    def file_bytes(self, device: str, path: str, *, offset: int = 0, interrupt: bool = False) -> Any: ...

    def exec_rows(self, device: str, code: str, *, interrupt: bool = False) -> Iterator[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run has stored: its `parts`, and their size in `bytes`."""

    parts: tuple[Path, ...]
    bytes: int


class Collection:
    """The log at `path` of a device, and the `folder` of its parts on this computer. One process may use a folder."""

    def __init__(
        self,
        board: Board,
        device: str,
        path: str,
        folder: Path,
        *,
        interrupt: bool = False,
        convert: Callable[[Path, Path], None] | None = None,
        stopped: Callable[[], bool] = bool,
    ) -> None:
        """`convert(source, target)` writes the rows of a part as a Parquet file, durably; None keeps parts as they are.

        A part whose rows do not fit into a table (`DataError`) stays as it is. When `stopped()` is true, a run ends
        within a part with a `TransportClosed`; the next one continues.
        """
        self._board = board
        self._device = device
        self._path = posixpath.normpath("/" + path.lstrip("/"))
        self._folder = folder
        self._interrupt = interrupt
        self._convert = convert
        self._stopped = stopped
        self._suffix = posixpath.splitext(self._path)[1] or ".log"
        if self._suffix in (".part", ".parquet"):
            raise RequestError("a log cannot have this ending", where=path, hint="Collect text, as .csv or .jsonl")

    def run(self) -> Collected:
        """Store everything that the log holds now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        waiting, size = self._on_board()
        stored: list[Path] = []
        for number in waiting:
            self._collect(number, stored)
        if size:
            number = max([0, *waiting, *self._numbers()]) + 1
            self._board.rename(self._device, self._path, self._part(number), interrupt=self._interrupt)
            self._collect(number, stored)
        if self._convert is not None:
            stored = [self._converted(path) for path in sorted(self._folder.glob(f"*{self._suffix}"))]
        return Collected(tuple(stored), sum(path.stat().st_size for path in stored))

    def _on_board(self) -> tuple[list[int], int]:
        """Return the numbers of the parts on the board, and the size of the log there."""
        folder, name = posixpath.split(self._path)
        numbers, size = [], 0
        for entry in self._board.ls(self._device, folder, interrupt=self._interrupt):
            found = re.fullmatch(rf"{re.escape(name)}\.(\d{{{DIGITS}}})", posixpath.basename(entry.path))
            if found:
                numbers.append(int(found[1]))
            elif posixpath.basename(entry.path) == name:
                size = entry.size
        return sorted(numbers), size

    def _numbers(self) -> list[int]:
        """Return the numbers of the parts here, complete or not."""
        names = (path.name.partition(".")[0] for path in self._folder.iterdir())
        return [int(name) for name in names if re.fullmatch(rf"\d{{{DIGITS}}}", name)]

    def _part(self, number: int) -> str:
        return f"{self._path}.{number:0{DIGITS}}"

    def _local(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number:0{DIGITS}}{suffix}"

    def _collect(self, number: int, stored: list[Path]) -> None:
        """Store a part that is on the board, and remove it there."""
        part, complete = self._local(number, ".part"), self._local(number, self._suffix)
        while True:
            if not complete.exists():
                self._read(number, part)
                os.replace(part, complete)
                sync_folder(self._folder)
            here, there = complete.stat().st_size, self._remove(number, complete.stat().st_size)
            if there is None or there == here:
                break
            if there < here:
                raise DataError(
                    f"it has {there} bytes, and {here} are stored here",
                    where=f"{self._device}:{self._part(number)}",
                    hint="Nothing was removed. Look at both, and rename one of them",
                )
            # The program had it still open, and has written more: read the rest.
            os.replace(complete, part)
        stored.append(complete)

    def _read(self, number: int, part: Path) -> None:
        """Read the rest of a part from the board into `part`, and verify all of it."""
        for _ in range(ATTEMPTS):
            with part.open("ab") as file:
                pieces = self._board.file_bytes(
                    self._device, self._part(number), offset=file.tell(), interrupt=self._interrupt
                )
                with pieces:
                    for piece in pieces:
                        file.write(piece)
                        if self._stopped():
                            raise TransportClosed("the collection was stopped", where=self._device)
                file.flush()
                os.fsync(file.fileno())
            digest = self._board.hash(self._device, self._part(number), interrupt=self._interrupt)
            if digest.digest == _digest_of(part, digest.algorithm):
                return
            part.unlink()
        raise DataError(
            "what was read is not what the board has",
            where=f"{self._device}:{self._part(number)}",
            hint="Nothing was removed. Try again; if it happens often, use a lower speed or a better cable",
        )

    def _remove(self, number: int, size: int) -> int | None:
        """Remove a part of this size from the board. Return the size that it has there; None if it is gone."""
        code = REMOVE.format(path=self._part(number), size=size)
        try:
            lines = [
                row["text"]
                for row in self._board.exec_rows(self._device, f"exec({code!r},{{}})", interrupt=self._interrupt)
            ]
        except FileMissing:
            return None
        return int(lines[-1])

    def _converted(self, path: Path) -> Path:
        """Convert a complete part to Parquet. The part goes when its rows are stored."""
        assert self._convert is not None
        target = path.with_suffix(".parquet")
        try:
            self._convert(path, target)
        except DataError:
            return path
        sync_folder(self._folder)
        path.unlink()
        return target


def folder_of(to: Path, device: str, path: str) -> Path:
    """Create the folder for the log at `path` of a device below `to`, and return it."""
    folder = to / device / posixpath.normpath("/" + path.lstrip("/")).strip("/").replace("/", "-")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be created", where=str(folder)) from error
    return folder


def _digest_of(path: Path, algorithm: str) -> str:
    import binascii

    sha256, crc32 = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            sha256.update(data)
            crc32 = binascii.crc32(data, crc32)
    return {"sha256": sha256.hexdigest(), "crc32": f"{crc32:08x}", "": ""}[algorithm]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def as_parquet(source: Path, target: Path) -> None:
    """Write the rows of a local file as a Parquet file. `DataError` if one does not fit."""
    # Not at the top: parts that stay as they are need no Arrow.
    from fastflight.client.local_rows import open_rows
    from fastflight.client.saving import SavedFile
    from fastflight.service.requests import DeviceFile

    request = DeviceFile(device="local", path=f"/{target.with_suffix('.arrow').name}")
    _, rows = open_rows(request, source)
    with SavedFile(target, rows.schema) as saved:
        for batch in rows.batches:
            saved.write(batch)
    descriptor = os.open(target, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
