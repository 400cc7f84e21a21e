"""What a copy needs of a device's files.

`ServerFiles` has them over Flight, `LightFiles` over Flight without Arrow, and `BoardFiles` at a board without a
server. Paths are absolute paths on the device. Loads no Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from fastflight.client.answers import Digest, Entry, Written
from fastflight.client.folder import LocalEntry
from fastflight.client.landing import RemoteEntry

if TYPE_CHECKING:
    from fastflight.client.progress import Report
    from fastflight.client.threads import Work

T_co = TypeVar("T_co", covariant=True)

# The path of a file below a folder, the offset of a piece of it, and the piece.
TreePiece = tuple[str, int, bytes]


class Download(Protocol[T_co]):
    """An answer that is read to its end, as a context manager. `cancel`, from any thread, makes reading fail."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def __iter__(self) -> Iterator[T_co]: ...

    def cancel(self) -> None: ...

    @property
    def sha256(self) -> str:
        """The digest of all bytes that were sent. Known when everything has been read."""
        ...


@dataclass(frozen=True, slots=True)
class FileToSend:
    """A local file to write to a device. `sha256` is that of the whole file."""

    source: Path
    size: int
    sha256: str
    # Called with the number of bytes that an interrupted write has left on the device, and their digest. Returns the
    # offset to go on at: that number, or 0. None: start from the beginning, and leave nothing if this breaks off.
    resume_at: Callable[[int, Digest], int] | None


class ReadableFiles(Protocol):
    """The files of one device, for copies from it."""

    @property
    def device(self) -> str: ...

    def stat(self, path: str) -> Entry: ...

    def hash(self, path: str, limit: int | None = None) -> Digest: ...

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]: ...

    def list_tree(self, folder: str) -> Download[Entry]: ...

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Download[bytes]: ...

    def read_tree(self, folder: str, paths: Sequence[str]) -> Download[tuple[Sequence[str], Sequence[TreePiece]]]:
        """Read files below a folder, in lots: the digests of files that have ended, then pieces."""
        ...


class DeviceFiles(ReadableFiles, Protocol):
    """The files of one device, for copies in both directions. `Written.sha256` is empty if the device reports none."""

    def remove(self, path: str) -> None: ...

    def write(self, path: str, file: FileToSend, report: Report | None) -> Work[Written]: ...

    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> Work[Written]: ...
