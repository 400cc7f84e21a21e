"""`Board`: the verbs of one board: its files, its code, its prompt, and copies between it and this computer.

`ServerBoard` has them over Flight, and `app.local_board.LocalBoard` at the board's own line. Paths are absolute paths
on the board. How files are reached (`FileOptions`), such as whether its program is stopped first, is said when a
`Board` is made. Loads no Arrow.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastflight.client import file_copy, tree_copy
from fastflight.client.answers import Digest, Entry, RemoteEntry, Written
from fastflight.client.file_copy import FileToSend
from fastflight.client.local_files import LocalEntry

if TYPE_CHECKING:
    from fastflight.client.progress import Report

# The path of a file below a folder, the offset of a block of it, and the block.
TreeBlock = tuple[str, int, bytes]


class Terminal(Protocol):
    """Holds a board's line. One thread may send while another receives. Call `settle` at the end."""

    @property
    def send(self) -> Callable[[bytes], None]:
        """Write to the board. Returns when the line has taken all of it."""
        ...

    @property
    def done(self) -> Callable[[], None]:
        """End the session: nothing more is sent, and `receive` returns None."""
        ...

    @property
    def cancel(self) -> Callable[[], None]:
        """End the session at once."""
        ...

    @property
    def settle(self) -> Callable[[], None]:
        """Give the line back."""
        ...

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """Wait for bytes on the line, and return them: whether the board sent them, and the bytes. None at the end.

        Raises `TransportClosed` if the board or the server has ended the session.
        """
        ...


class Board(ABC):
    """One board. Raises the errors of `fastflight.errors`, as `FastFlightClient` does."""

    name: str

    @abstractmethod
    def ls(self, path: str = "/", *, recursive: bool = False) -> list[Entry]:
        """Return the entries of a folder; with `recursive`, of the folders below it as well."""

    @abstractmethod
    def stat(self, path: str) -> Entry:
        """Return the entry of a file or folder. Raises `FileMissing` if there is none."""

    @abstractmethod
    def hash(self, path: str, limit: int | None = None) -> Digest:
        """Have the board digest a file, or its first `limit` bytes. Raises `DeviceError` if it cannot."""

    @abstractmethod
    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        """Have the board digest all files below a folder. Raises `DeviceError` if it cannot."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Generator[bytes, None, None]:
        """Yield the bytes of a file from `offset` on, at most `limit`. Close the generator at the end.

        Raises `DataError` after the last byte if these are not the bytes that the board has sent.
        """

    @abstractmethod
    def read_tree(
        self, folder: str, paths: Sequence[str]
    ) -> Generator[tuple[Sequence[str], Sequence[TreeBlock]], None, None]:
        """Read files below a folder. Yields the digests of files that have ended, and then blocks. Close it at the end.

        Raises `DataError` as `read` does.
        """

    @abstractmethod
    def write(self, path: str, file: FileToSend, report: Report | None) -> Written:
        """Write a local file. `Written.sha256` is empty if the board reports none."""

    @abstractmethod
    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> Written:
        """Write local files below a folder."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create a folder."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """Move a file or folder. A file at the path `to` is replaced."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return what the board reports about itself: firmware, capabilities, free memory and storage."""

    @abstractmethod
    def reset(self, *, hard: bool = False, main: bool = True) -> None:
        """Restart the interpreter, which then runs `main.py` unless `main` is false; with `hard`, restart the board."""

    @abstractmethod
    def exec(self, code: str, timeout: float | None = None) -> Generator[dict[str, Any], None, None]:
        """Run code and yield its output by lines: `line`, `time` and `text`. At the end, raise its error."""

    @abstractmethod
    def terminal(self) -> Terminal:
        """Take the board's line, to send keys and receive what the board prints."""

    put_file = file_copy.put_file
    get_file = file_copy.get_file
    put_tree = tree_copy.put_tree
    get_tree = tree_copy.get_tree

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a file, or its first `limit` bytes. Raises `FileMissing` if there is none."""
        with closing(self.read(path, limit=limit)) as blocks:
            return b"".join(blocks)

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a small file. The old one stays until the new one is complete and verified."""
        with tempfile.TemporaryDirectory(prefix="fastflight-") as folder:
            here = Path(folder) / "file"
            here.write_bytes(content)
            self.put_file(path, here, resume=False)
