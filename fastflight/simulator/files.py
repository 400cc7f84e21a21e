"""The board's file system: a folder of the host that board paths cannot leave.

The board's root `/` is this folder. A path is first resolved as text against the board's working directory (`..` at the
root stays there), then by the host; a path that leads outside through a symbolic link does not exist for the board.
Names are UTF-8, at most `MAX_NAME` bytes. Errors are the board's `OSError`. Where file systems differ, the rules are
those of littlefs: `rename` replaces a file, and `remove` and `rmdir` both remove files and empty folders.

Not modelled: the board also refuses the names that the host's file system refuses (on Windows the characters
`<>:"|?*`).
"""

from __future__ import annotations

import io
import os
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from fastflight.simulator.faults import Faults
from fastflight.simulator.oserror import ENAMETOOLONG, ERRNO, BoardOSError, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# littlefs' LFS_NAME_MAX.
MAX_NAME = 255
# The erase unit of a flash chip, which is the unit of `statvfs`.
BLOCK = 4096
# The type of an entry in `ilistdir`, and the mode in `stat`.
FOLDER = 0x4000
FILE = 0x8000


class FileSystem:
    """The files below `root`, at most `capacity` bytes. `heap` returns how many bytes a single read may take."""

    def __init__(
        self,
        root: str,
        *,
        capacity: int,
        heap: Callable[[], int],
        faults: Faults | None = None,
    ) -> None:
        self.root = os.path.realpath(root)
        self.capacity = capacity
        self.heap = heap
        self.folder = "/"
        self._faults = faults or Faults()
        self._used = 0

    def resolve(self, path: object) -> tuple[str, str]:
        """Return the absolute path on the board and the path on the host, for a path from board code.

        Raises `BoardOSError` if the path leads outside or holds a name that is not allowed.
        """
        if isinstance(path, (bytes, bytearray)):
            path = bytes(path).decode("utf-8", "surrogateescape")
        if not isinstance(path, str):
            raise TypeError(f"can't convert '{type(path).__name__}' object to str implicitly")
        absolute = self.absolute(path)
        parts = absolute.split("/")[1:]
        for part in parts:
            _check_name(part)
        host = os.path.join(self.root, *parts)
        if not inside(host, self.root):
            raise BoardOSError(ERRNO["ENOENT"])
        return absolute, host

    def absolute(self, path: str) -> str:
        """Return the absolute path on the board, without `.` and `..`."""
        parts: list[str] = []
        for name in (path if path.startswith("/") else f"{self.folder}/{path}").split("/"):
            if name == "..":
                del parts[-1:]
            elif name not in ("", "."):
                parts.append(name)
        return "/" + "/".join(parts)

    def used(self) -> int:
        """Return the bytes in all files. Counts them each time, because other programs may change the folder."""
        self._used = 0
        for folder, _, names in os.walk(self.root):
            self._used += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
        return self._used

    def charge(self, growth: int) -> None:
        """Account for a write that makes its file `growth` bytes longer. Raises `ENOSPC` if it does not fit.

        Also waits for as long as a `flash-stall` fault says.
        """
        if self._faults.flash_stall:
            time.sleep(self._faults.flash_stall / 1000)
        if growth > 0 and (self._faults.on_write(growth) or self._used + growth > self.capacity):
            raise BoardOSError(ERRNO["ENOSPC"])
        self._used += max(0, growth)

    @translated
    def open(self, path: object, mode: str = "r", *ignored: object, **options: object) -> BoardFile:
        if not mode or mode.strip("rwab+t") or sum(letter in mode for letter in "rwa") != 1:
            raise ValueError("bad mode")
        _, host = self.resolve(path)
        if os.path.isdir(host):
            raise BoardOSError(ERRNO["EISDIR"])
        raw_mode = mode.replace("t", "").replace("b", "") + "b"
        # Unbuffered for writing, so that written bytes are counted and survive a reset; buffered for reading.
        stream: BinaryIO = open(host, raw_mode, buffering=-1 if raw_mode == "rb" else 0)  # type: ignore[assignment]
        if raw_mode != "rb":
            self.used()
        return (BoardFile if "b" in mode else TextFile)(stream, self)

    @translated
    def names(self, path: object = "") -> list[str]:
        return sorted(os.listdir(self.resolve(path)[1]))

    @translated
    def entries(self, path: object = "") -> Iterator[tuple[str, int, int, int]]:
        host = self.resolve(path)[1]
        rows = []
        for name in sorted(os.listdir(host)):
            state = os.lstat(os.path.join(host, name))
            folder = os.path.isdir(os.path.join(host, name))
            rows.append((name, FOLDER if folder else FILE, 0, 0 if folder else state.st_size))
        return iter(rows)

    @translated
    def stat(self, path: object) -> tuple[int, ...]:
        host = self.resolve(path)[1]
        state = os.stat(host)
        folder = os.path.isdir(host)
        when = int(state.st_mtime)
        return (FOLDER if folder else FILE, 0, 0, 0, 0, 0, 0 if folder else state.st_size, when, when, when)

    @translated
    def statvfs(self, path: object) -> tuple[int, ...]:
        self.stat(path)
        blocks = self.capacity // BLOCK
        free = max(0, self.capacity - self.used()) // BLOCK
        return (BLOCK, BLOCK, blocks, free, free, 0, 0, 0, 0, MAX_NAME)

    @translated
    def remove(self, path: object) -> None:
        board, host = self.resolve(path)
        if board == "/":
            raise BoardOSError(ERRNO["EINVAL"])
        if os.path.isdir(host) and not os.path.islink(host):
            os.rmdir(host)
        else:
            os.remove(host)

    @translated
    def rename(self, old: object, new: object) -> None:
        os.replace(self.resolve(old)[1], self.resolve(new)[1])

    @translated
    def mkdir(self, path: object) -> None:
        os.mkdir(self.resolve(path)[1])

    @translated
    def chdir(self, path: object) -> None:
        board, host = self.resolve(path)
        if not os.path.isdir(host):
            raise BoardOSError(ERRNO["ENOENT"])
        self.folder = board

    def getcwd(self) -> str:
        return self.folder


def _check_name(name: str) -> None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise BoardOSError(ERRNO["EINVAL"]) from None
    if size > MAX_NAME:
        raise BoardOSError(ENAMETOOLONG)
    if "\0" in name or os.sep != "/" and (os.sep in name or ":" in name):
        raise BoardOSError(ERRNO["EINVAL"])


def inside(path: str, root: str) -> bool:
    """Whether `path`, with all symbolic links resolved, is `root` or below it. `root` must already be resolved."""
    real = os.path.realpath(path)
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


class BoardFile:
    """A binary file object of the board."""

    def __init__(self, stream: BinaryIO, system: FileSystem) -> None:
        self._stream = stream
        self._system = system

    def _limit(self, count: int) -> int:
        """Return the `count` of a read (negative: the rest). Raises `MemoryError` if it exceeds the free heap."""
        size = count
        if count < 0:
            size = max(0, os.fstat(self._stream.fileno()).st_size - self._stream.tell())
        if size > self._system.heap():
            raise MemoryError(f"memory allocation failed, allocating {size} bytes")
        return size if count < 0 else count

    @translated
    def read(self, count: int | None = -1) -> Any:
        return self._stream.read(self._limit(-1 if count is None else count))

    @translated
    def read_all(self) -> bytes:
        """Read the rest of the file without the heap check, for `import`: a real board reads it piece by piece."""
        return self._stream.read()

    @translated
    def readinto(self, buffer: Any, count: int | None = None) -> int:
        view = memoryview(buffer).cast("B")
        return self._stream.readinto(view if count is None else view[:count])  # type: ignore[attr-defined, no-any-return]

    @translated
    def readline(self, count: int = -1) -> Any:
        return self._stream.readline(count)

    @translated
    def readlines(self) -> list[Any]:
        return list(self)

    @translated
    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        stream = self._stream
        size = os.fstat(stream.fileno()).st_size
        # Append mode writes at the end, wherever the position is.
        start = size if "a" in getattr(stream, "mode", "") else stream.tell()
        self._system.charge(start + len(view) - size)
        return stream.write(view)

    @translated
    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    @translated
    def tell(self) -> int:
        return self._stream.tell()

    @translated
    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __enter__(self) -> BoardFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class TextFile(BoardFile):
    """A text file object of the board: UTF-8, newlines unchanged."""

    @translated
    def read(self, count: int | None = -1) -> str:
        if count is None or count < 0:
            return str(super().read(), "utf-8")
        text = bytearray()
        for _ in range(count):
            text += self._character()
        return str(text, "utf-8")

    def _character(self) -> bytes:
        first = self._stream.read(1)
        follow = 0 if not first or first[0] < 0xC0 else 1 if first[0] < 0xE0 else 2 if first[0] < 0xF0 else 3
        return first + self._stream.read(follow)

    @translated
    def readline(self, count: int = -1) -> str:
        return str(self._stream.readline(count), "utf-8")

    @translated
    def write(self, data: Any) -> int:
        super().write(data.encode() if isinstance(data, str) else data)
        return len(data)


# Classes of the board's `io` module. They are the host's own, and touch no files.
MEMORY_STREAMS = {"BytesIO": io.BytesIO, "StringIO": io.StringIO}
