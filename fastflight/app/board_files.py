"""The files of a board of this computer, over its own line, for copies without a server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from fastflight.client.answers import EPOCH, Digest, Entry, Written
from fastflight.client.device_files import FileToSend, RemoteEntry, TreePiece
from fastflight.client.local_files import LocalEntry, pieces_of
from fastflight.client.progress import Report
from fastflight.device import FileEntry, PartialWrite, Resumption, Session, Transfer
from fastflight.errors import DataError, DeviceError

T = TypeVar("T")

Lease = Callable[[], AbstractContextManager[Session]]
Hash = Any  # of hashlib, whose class has no public name


class BoardDownload(Generic[T]):
    """A `Download` of what the generator `items` yields. It adds all bytes that it reads to its argument."""

    def __init__(self, items: Callable[[Hash], Generator[T, None, None]]) -> None:
        self._hash = hashlib.sha256()
        self._items = items(self._hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._items.close()

    def __iter__(self) -> Iterator[T]:
        return self._items

    def cancel(self) -> None:
        """Do nothing: the only thread that could cancel is the one that reads."""

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class BoardWrite:
    """The `Work` of a write."""

    run: Callable[[], Written]

    def give_up(self) -> None:
        """Do nothing: the only thread that could call this is the one that writes."""


class BoardFiles:
    """The `DeviceFiles` of the board `device`. `lease` gives a session on it."""

    def __init__(self, device: str, lease: Lease, transfer: Transfer) -> None:
        self.device = device
        self._lease = lease
        self._transfer = transfer

    def stat(self, path: str) -> Entry:
        with self._lease() as session:
            return entry_of(session.stat(path))

    def hash(self, path: str, limit: int | None = None) -> Digest:
        with self._lease() as session:
            algorithm, digest = session.hash(path, limit=limit)
        if not algorithm:
            raise DeviceError("this board cannot compute hashes", where=f"{self.device}:{path}", hint="Copy the file")
        return Digest(algorithm, digest)

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        with self._lease() as session:
            found = session.hashes(folder)
        if not all(each.algorithm for each in found):
            raise DeviceError("this board cannot compute hashes", where=f"{self.device}:{folder}")
        return [(each.path, RemoteEntry(each.size, each.algorithm, each.digest)) for each in found]

    def list_tree(self, folder: str) -> BoardDownload[Entry]:
        def items(_: Hash) -> Generator[Entry, None, None]:
            with self._lease() as session:
                yield from map(entry_of, session.list(folder, recursive=True))

        return BoardDownload(items)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> BoardDownload[bytes]:
        def items(sha256: Hash) -> Generator[bytes, None, None]:
            with self._lease() as session:
                yield from self._pieces(session, sha256, path, offset, limit)

        return BoardDownload(items)

    def read_tree(self, folder: str, paths: Sequence[str]) -> BoardDownload[tuple[Sequence[str], Sequence[TreePiece]]]:
        def items(sha256: Hash) -> Generator[tuple[Sequence[str], Sequence[TreePiece]], None, None]:
            with self._lease() as session:
                for path in paths:
                    offset = 0
                    for data in self._pieces(session, sha256, f"{folder}/{path}"):
                        yield (), [(path, offset, data)]
                        offset += len(data)
                    if not offset:
                        yield (), [(path, 0, b"")]

        return BoardDownload(items)

    def remove(self, path: str) -> None:
        with self._lease() as session:
            session.remove(path)

    def write(self, path: str, file: FileToSend, report: Report | None) -> BoardWrite:
        def run() -> Written:
            keep, resumption = file.resume_at is not None, None
            with self._lease() as session:
                part = session.part(path) if keep else None
                start = _start(file, part)
                if part is not None and start:
                    resumption = Resumption(part, file.sha256)
                content = _checked(file, start, report)
                written = session.write(
                    path, content, resume=resumption, keep=keep, transfer=self._transfer, size=file.size
                )
            return Written(0, written.bytes, written.sha256)

        return BoardWrite(run)

    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> BoardWrite:
        done = 0

        def content(entry: LocalEntry) -> Generator[bytes, None, None]:
            nonlocal done
            for _, data in pieces_of(entry.local):
                yield data
                done += len(data)
                if report is not None:
                    report(0, done, None)

        def run() -> Written:
            with self._lease() as session:
                session.write_tree(folder, ((each.path, content(each)) for each in files), transfer=self._transfer)
            return Written(0, done, "")

        return BoardWrite(run)

    def _pieces(
        self, session: Session, sha256: Hash, path: str, offset: int = 0, limit: int | None = None
    ) -> Generator[bytes, None, None]:
        with closing(session.read(path, offset=offset, limit=limit, transfer=self._transfer)) as pieces:
            for piece in pieces:
                if piece:
                    sha256.update(piece)
                    yield piece


def entry_of(entry: FileEntry) -> Entry:
    """Return an entry of a board as the clients do."""
    modified = None if entry.modified is None else EPOCH + timedelta(seconds=entry.modified)
    return Entry(entry.path, entry.kind, entry.size, modified)


def _start(file: FileToSend, part: PartialWrite | None) -> int:
    """Return the offset at which to go on after `part`."""
    if part is None or file.resume_at is None:
        return 0
    return file.resume_at(part.size, Digest(part.algorithm, part.digest))


def _checked(file: FileToSend, start: int, report: Report | None) -> Generator[bytes, None, None]:
    """Yield the bytes of a file from `start` on. The next piece is taken when the board has stored the one before.

    Raises `DataError` at the end if the file is no longer what it was. A resumed file is checked on the board, as a
    whole.
    """
    sha256 = hashlib.sha256()
    for offset, data in pieces_of(file.source, start):
        yield data
        sha256.update(data)
        if report is not None:
            report(0, offset + len(data), file.size)
    if not start and sha256.hexdigest() != file.sha256:
        raise DataError("the file changed while it was copied", where=str(file.source), hint="Try again")
