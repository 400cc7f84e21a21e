"""Collects a log that a board's program appends to: each line is stored once on this computer, then leaves the board.

`Collection.run` renames the log on the board to a part, so that the program begins a new one. It reads the part,
verifies it by the board's digest, stores it durably, and only then removes it from the board.

A part on the board is named by a number and by the id of its collector, `log.csv.0000007-5f0c21ab`: the number is used
once by this collector, and other collectors have other ids. Whatever is killed, and whenever, the next run continues.
What it finds says what to do. Nothing is removed or replaced because a name or a size is the same: the board's digest
must be that of the stored bytes.

=========================  =====================  =================================================================
on the board               here                   what the next run does
=========================  =====================  =================================================================
`log.csv.0000007-ID`       nothing, or `7.part`   reads from the end of `.part` on, verifies, stores
`log.csv.0000007-ID`       `7.csv`, the same      removes it from the board; if it has grown, reads the rest first
`log.csv.0000007-ID`       `7.csv`, another       renames it on the board to the next number, and stores that
nothing                    `7.csv`                converts it to Parquet, if that is asked for
`log.csv.0000007-OTHER`                           leaves it, until it has not changed for ten minutes: then its
                                                  collector has gone, and it is renamed to the next number
`log.csv`                  `7.csv` is the last    renames it to `log.csv.0000008-ID`
=========================  =====================  =================================================================

The program must open its log for each line that it appends: an open file may not follow a rename.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fastflight.client.answers import Digest
from fastflight.client.board import Board
from fastflight.client.collected_part import PARQUET, ParquetPart, PlainPart, StoredPart, as_parquet
from fastflight.client.collector import Collector, sync_folder
from fastflight.client.local_files import agrees, os_errors_of
from fastflight.client.local_names import local_folder
from fastflight.errors import DataError, DeviceError, DeviceException, FileMissing, RequestError, TransportClosed
from fastflight.files import FileLock
from fastflight.own_code import wrap_for_program

# Parts are listed by name: as many digits as ten years of a part every five minutes need.
DIGITS = 7
PART_SUFFIX = ".part"
# Attempts to read a part whose digest is wrong, or that grows.
ATTEMPTS = 3
# Renames a file, but never over another one: a rename whose answer was lost must not be done twice.
MOVE = """\
import os
try:
 os.stat({to!r})
except OSError:
 os.rename({path!r},{to!r})
print(0)
"""
# Prints the size of a part, and removes the part if that is the given size.
REMOVE = "import os\ns=os.stat({path!r})[6]\nif s=={size}:\n os.remove({path!r})\nprint(s)"


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run has stored in `folder`: its `parts`, and their size in `bytes`."""

    folder: Path
    parts: tuple[Path, ...]
    bytes: int


class Collection:
    """The log at `path` of a board, and the `folder` of its parts on this computer. One process may use a folder."""

    def __init__(
        self,
        board: Board,
        path: str,
        folder: Path,
        *,
        convert: Callable[[Path, Path], None] | None = None,
        stopped: Callable[[], bool] = bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`convert(source, target)` writes the rows of a part as a Parquet file, durably; None keeps parts as they are.

        A part whose rows do not fit into a table (`DataError`) stays as it is. When `stopped()` is true, a run ends
        within a part with a `TransportClosed`; the next one continues.
        """
        self._board = board
        self._path = posixpath.normpath("/" + path.lstrip("/"))
        self._folder = folder
        self._convert = convert
        self._stopped = stopped
        self._clock = clock
        self._suffix = posixpath.splitext(self._path)[1] or ".log"
        if self._suffix in (PART_SUFFIX, PARQUET):
            raise RequestError("a log cannot have this ending", where=path, hint="Collect text, as .csv or .jsonl")

    def run(self) -> Collected:
        """Store everything that the log holds now."""
        with os_errors_of(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._collector = Collector.of(self._folder, self._board.name, self._path)
            stored = self._run()
            return Collected(self._folder, tuple(stored), sum(path.stat().st_size for path in stored))

    def _run(self) -> list[Path]:
        sizes = self._on_board()
        ours, others = [], {}
        form = re.compile(rf"{re.escape(self._path)}\.(\d{{{DIGITS}}})-([0-9a-f]+)")
        for name, size in sizes.items():
            if (found := form.fullmatch(name)) and found[2] == self._collector.id:
                ours.append(int(found[1]))
            elif found:
                others[name] = size
        self._collector.number = max([self._collector.number, *ours, *self._numbers()])
        adopted = self._collector.to_adopt(others, self._clock())
        self._collector.save(self._folder)
        stored: list[Path] = []
        for number in sorted(ours):
            self._collect(number, sizes[self._part(number)], stored)
        for name in [*sorted(adopted), self._path]:
            # Another collector, or the program, may have taken it meanwhile.
            if sizes.get(name) and self._move(name):
                self._collect(self._collector.number, sizes[name], stored)
        if self._convert is not None:
            stored = [self._converted(path) for path in self._complete()]
        return stored

    def _on_board(self) -> dict[str, int]:
        """Return the files in the folder of the log, by path, with their sizes."""
        entries = self._board.ls(posixpath.dirname(self._path))
        return {entry.path: entry.size for entry in entries if entry.kind == "file"}

    def _numbers(self) -> list[int]:
        """Return the numbers of the parts here, complete or not."""
        found = (re.match(rf"(\d{{{DIGITS}}})\.", path.name) for path in self._folder.iterdir())
        return [int(each[1]) for each in found if each]

    def _complete(self) -> list[Path]:
        """Return the complete parts here that are as the board had them, in order."""
        form = re.compile(rf"\d{{{DIGITS}}}{re.escape(self._suffix)}")
        return sorted(path for path in self._folder.iterdir() if form.fullmatch(path.name))

    def _part(self, number: int) -> str:
        return f"{self._path}.{number:0{DIGITS}}-{self._collector.id}"

    def _local(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number:0{DIGITS}}{suffix}"

    def _stored(self, number: int) -> StoredPart | None:
        """Return the part that is stored here under a number."""
        if (path := self._local(number, self._suffix)).exists():
            return PlainPart(path)
        return ParquetPart(path) if (path := self._local(number, PARQUET)).exists() else None

    def _move(self, path: str) -> bool:
        """Rename a file on the board to a part with the next number. Return whether there was such a file."""
        self._collector.number += 1
        # First: a number is used once, also if this process is killed before it learns of the rename.
        self._collector.save(self._folder)
        try:
            self._answer(MOVE.format(path=path, to=self._part(self._collector.number)))
        except FileMissing:
            return False
        except DeviceException as error:
            if error.kind != "AttributeError":
                raise
            raise DeviceError("this board cannot rename files", where=self._board.name) from error
        return True

    def _collect(self, number: int, there: int, stored: list[Path]) -> None:
        """Store a part that is on the board, where it has `there` bytes, and remove it there."""
        for _ in range(ATTEMPTS):
            try:
                here = self._stored(number)
                if here is not None and not self._begin_alike(here, number, there):
                    # A part from another board or another time: it gets a number of its own.
                    self._move(self._part(number))
                    number, here = self._collector.number, None
                if here is None or here.size < there:
                    here = self._read(number, here)
                    there = here.size
            except FileMissing:
                return  # another collector has adopted it
            left = self._remove(number, there)
            if left in (None, there):
                stored.append(here.path)
                return
            there = left
        raise DataError(
            "it changes all the time",
            where=f"{self._board.name}:{self._part(number)}",
            hint="Nothing was removed. The program must open the log for each line, and close it again",
        )

    def _begin_alike(self, here: StoredPart, number: int, there: int) -> bool:
        """Whether the shorter one of a stored part and a part on the board is the beginning of the other one."""
        size = min(here.size, there)
        if here.size < there and not here.can_grow:
            return False
        if not size:
            return True
        digest = self._digest(number, size)
        return here.digest(digest.algorithm, size) == digest.digest

    def _digest(self, number: int, size: int) -> Digest:
        """Have the board compute the digest of the first bytes of a part."""
        digest = self._board.hash(self._part(number), size)
        if not digest.digest:
            raise DeviceError(
                "this board computes no digests", where=self._board.name, hint="Copy the log: fastflight cp"
            )
        return digest

    def _read(self, number: int, here: StoredPart | None) -> PlainPart:
        """Store a part of the board: read what follows the bytes that are here already, and verify all of it."""
        part = self._local(number, PART_SUFFIX)
        if here is not None:
            os.replace(here.path, part)
        for _ in range(ATTEMPTS):
            self._read_rest(number, part)
            size = part.stat().st_size
            digest = self._digest(number, size)
            if not size or agrees(part, digest.algorithm, digest.digest):
                complete = self._local(number, self._suffix)
                os.replace(part, complete)
                sync_folder(self._folder)
                return PlainPart(complete)
            part.unlink()
        raise DataError(
            "what was read is not what the board has",
            where=f"{self._board.name}:{self._part(number)}",
            hint="Nothing was removed. Try again; if it happens often, use a lower speed or a better cable",
        )

    def _read_rest(self, number: int, part: Path) -> None:
        """Append to `part` what the board has after it, durably."""
        with part.open("ab") as file:
            offset = file.tell()
            with closing(self._board.read(self._part(number), offset)) as blocks:
                for data in blocks:
                    file.write(data)
                    if self._stopped():
                        raise TransportClosed("the collection was stopped", where=self._board.name)
            file.flush()
            os.fsync(file.fileno())

    def _remove(self, number: int, size: int) -> int | None:
        """Remove a part of this size from the board. Return the size that it has there; None if it is gone."""
        try:
            return self._answer(REMOVE.format(path=self._part(number), size=size))
        except FileMissing:
            return None

    def _answer(self, code: str) -> int:
        """Run code on the board, and return the number that it prints at its end."""
        rows = list(self._board.exec(wrap_for_program(code)))
        said = rows[-1]["text"] if rows else ""
        if not re.fullmatch(r"[0-9]{1,18}", said):
            raise DeviceError(f"it answered {said[:64]!r}, not a number", where=self._board.name, hint="Try again")
        return int(said)

    def _converted(self, path: Path) -> Path:
        """Convert a complete part to Parquet. The part goes when its rows are stored."""
        assert self._convert is not None
        target = path.with_suffix(PARQUET)
        try:
            self._convert(path, target)
        except DataError:
            return path
        sync_folder(self._folder)
        path.unlink()
        return target


def collect_log(
    board: Board, path: str, to: Path, holder: str, *, parquet: bool = False, stopped: Callable[[], bool] = bool
) -> Collected:
    """Collect the log at `path` of a board once, into its folder below `to`, which is locked meanwhile.

    `holder` is what a `BusyError` calls this process, if another one collects the log. `parquet`: convert the parts.
    `stopped` is as for `Collection`.
    """
    folder = local_folder(to, board.name, path)
    with os_errors_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "collect.lock", holder)
    try:
        convert = as_parquet if parquet else None
        return Collection(board, path, folder, convert=convert, stopped=stopped).run()
    finally:
        lock.close()
