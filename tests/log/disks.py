"""Disks for tests: one in memory that knows what a power cut would leave, and one whose calls fail on request."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence

from fastflight.log.disk import Disk, File

State = dict[str, bytes]


class Inode:
    def __init__(self, content: bytes = b"") -> None:
        self.cached = bytearray(content)
        self.durable = content


class MemoryFile:
    def __init__(self, disk: MemoryDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "full")
        data = b"".join(pieces)
        half = len(data) // 2
        self._inode.cached += data[:half]
        self._disk.changed()  # killed, or cut, in the middle of a write
        self._inode.cached += data[half:]
        self._disk.changed()
        return len(data)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._inode.cached[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.cached)

    def truncate(self, size: int) -> None:
        del self._inode.cached[size:]
        self._disk.changed()

    def sync(self) -> None:
        self._inode.durable = bytes(self._inode.cached)
        self._disk.changed()

    def close(self) -> None:
        pass


class MemoryDisk:
    """A disk that tells `watch` after every step that changes it."""

    def __init__(self, state: State | None = None, watch: Callable[[MemoryDisk], None] | None = None) -> None:
        self._entries = {name: Inode(content) for name, content in (state or {}).items()}
        self._durable = dict(self._entries)
        self._watch = watch
        # Whether it takes no more bytes.
        self.full = False

    def forget(self) -> None:
        """Have the system keep what there is, and nothing of it on the medium yet: as after a kill."""
        for inode in self._entries.values():
            inode.durable = b""

    def changed(self) -> None:
        if self._watch is not None:
            self._watch(self)

    def names(self) -> list[str]:
        return sorted(self._entries)

    def create(self, name: str) -> File:
        if name in self._entries:
            raise FileExistsError(errno.EEXIST, "there is one")
        self._entries[name] = Inode()
        self.changed()
        return MemoryFile(self, self._entries[name])

    def open(self, name: str, *, writing: bool = False) -> File:
        try:
            return MemoryFile(self, self._entries[name])
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "there is none") from None

    def rename(self, old: str, new: str) -> None:
        self._entries[new] = self._entries.pop(old)
        self.changed()

    def remove(self, name: str) -> None:
        if name not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "there is none")
        del self._entries[name]
        self.changed()

    def sync_folder(self) -> None:
        self._durable = dict(self._entries)
        self.changed()

    def state(self) -> State:
        """The bytes that the folder holds for whoever opens it now."""
        return {name: bytes(inode.cached) for name, inode in self._entries.items()}

    def states(self) -> Iterator[State]:
        """What the folder may hold after the process was killed now, or the power was cut."""
        yield self.state()
        for entries in (self._entries, self._durable):
            yield {name: inode.durable for name, inode in entries.items()}
            yield {name: bytes(inode.cached) for name, inode in entries.items()}
            yield {name: _part(inode, b"") for name, inode in entries.items()}
            yield {name: _part(inode, bytes(len(inode.cached))) for name, inode in entries.items()}


def _part(inode: Inode, rest: bytes) -> bytes:
    """A file of which half of what was not synced reached the medium, and `rest` stands for the other half."""
    new = len(inode.cached) - len(inode.durable)
    if new <= 0:
        return inode.durable
    middle = len(inode.durable) + new // 2
    return bytes(inode.cached[:middle]) + rest[middle:]


class FailingDisk:
    """`disk`, of which calls fail: `fails(call, name)` gives the errno, or 0. A failing write has written some."""

    def __init__(self, disk: Disk, fails: Callable[[str, str], int]) -> None:
        self._disk = disk
        self._fails = fails

    def step(self, call: str, name: str) -> None:
        if number := self._fails(call, name):
            raise OSError(number, "on request")

    def names(self) -> list[str]:
        self.step("names", "")
        return self._disk.names()

    def create(self, name: str) -> File:
        self.step("create", name)
        return FailingFile(self, name, self._disk.create(name))

    def open(self, name: str, *, writing: bool = False) -> File:
        self.step("open", name)
        return FailingFile(self, name, self._disk.open(name, writing=writing))

    def rename(self, old: str, new: str) -> None:
        self.step("rename", old)
        self._disk.rename(old, new)

    def remove(self, name: str) -> None:
        self.step("remove", name)
        self._disk.remove(name)

    def sync_folder(self) -> None:
        self.step("sync_folder", "")
        self._disk.sync_folder()


class FailingFile:
    def __init__(self, disk: FailingDisk, name: str, file: File) -> None:
        self._disk = disk
        self._name = name
        self._file = file

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        data = b"".join(pieces)
        try:
            self._disk.step("write", self._name)
        except OSError:
            self._file.write([data[: len(data) * 2 // 3]])
            raise
        # Short writes are as good as any: a caller must go on.
        return self._file.write([data[: max(1, len(data) * 3 // 4)]])

    def read(self, offset: int, size: int) -> bytes:
        self._disk.step(f"read {offset} {size}", self._name)
        return self._file.read(offset, size)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self._name)
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.step("sync", self._name)
        self._file.sync()

    def close(self) -> None:
        self._file.close()
