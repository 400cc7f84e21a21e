"""What a copy needs of a device's files.

`ServerFiles` has them over Flight, and `BoardFiles` at a board without a server. Paths are absolute paths on the
device. Loads no Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from fastflight.client.answers import Digest, Entry, Written
from fastflight.client.local_files import LocalEntry, agrees
from fastflight.client.local_names import board_path
from fastflight.client.meaning import text, understood, whole

if TYPE_CHECKING:
    from fastflight.client.progress import Report
    from fastflight.client.threads import Work

T_co = TypeVar("T_co", covariant=True)

# The path of a file below a folder, the offset of a piece of it, and the piece.
TreePiece = tuple[str, int, bytes]


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
