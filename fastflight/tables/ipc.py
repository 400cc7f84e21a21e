"""Splits Arrow IPC streams into messages, and checks the size of a message before Arrow reads it.

A message is `FF FF FF FF`, the int32 size of its metadata, the metadata (a flatbuffer `Message`), padding to 8 bytes
and a body; size 0 ends the stream (Arrow columnar format, "Encapsulated message format"). `MessageSplitter` parses only
as much as it needs to find the end of a message; `check_size` and `Dictionaries` apply the limits on memory. An IPC
*file* is the same stream after the magic `ARROW1`, followed by a footer that is not needed to read it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fastflight.errors import DataError

# Enough for a schema of some thousand columns with their metadata.
MAX_METADATA_BYTES = 4 * 1024 * 1024
# A record batch is held in memory as a whole. This is also the limit for the decompressed size of its buffers, and for
# all dictionaries of a stream together.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Rows of columns of type null take no bytes: a message of 200 bytes could claim 2^60 of them.
MAX_MESSAGE_ROWS = 16 * 1024 * 1024

FILE_MAGIC = b"ARROW1\0\0"
_CONTINUATION = b"\xff\xff\xff\xff"

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class IpcMessage:
    """One whole message: its offset in the file, its bytes with framing, and its kind (a `MessageHeader` code)."""

    offset: int
    data: bytes
    kind: int


def broken(what: str, offset: int) -> DataError:
    """Return the error for a stream that is damaged at byte `offset`."""
    return DataError(what, where=f"byte {offset}", hint="Is this an Arrow IPC stream? Try format raw")


class Flatbuffer:
    """A table of a flatbuffer, read with every offset checked (flatbuffers internals, "Tables")."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - self._unpack("<i", position)
        self._vtable_size = self._unpack("<H", self._vtable)

    @classmethod
    def root(cls, data: bytes) -> Flatbuffer:
        return cls(data, cls._read("<I", data, 0))

    @staticmethod
    def _read(format_: str, data: bytes, position: int) -> int:
        if not 0 <= position <= len(data) - struct.calcsize(format_):
            raise ValueError("an offset points outside of the metadata")
        value: int = struct.unpack_from(format_, data, position)[0]
        return value

    def _unpack(self, format_: str, position: int) -> int:
        return self._read(format_, self._data, position)

    def _slot(self, index: int) -> int:
        """Return the position of field `index`; 0 if the table does not have it."""
        entry = 4 + 2 * index
        relative = self._unpack("<H", self._vtable + entry) if entry + 2 <= self._vtable_size else 0
        return self._position + relative if relative else 0

    def scalar(self, index: int, format_: str) -> int:
        slot = self._slot(index)
        return self._unpack(format_, slot) if slot else 0

    def table(self, index: int) -> Flatbuffer | None:
        slot = self._slot(index)
        return Flatbuffer(self._data, slot + self._unpack("<I", slot)) if slot else None

    def pairs(self, index: int) -> list[tuple[int, int]]:
        """Return field `index`, a vector of structs of two int64."""
        slot = self._slot(index)
        if not slot:
            return []
        start = slot + self._unpack("<I", slot)
        count = self._unpack("<I", start)
        if count * 16 > len(self._data) - start - 4:
            raise ValueError("a vector is longer than the metadata")
        return list(struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count]))


class MessageSplitter:
    """Splits a stream into messages. `feed` raises `DataError` if it is no Arrow stream or breaks a limit."""

    def __init__(self) -> None:
        self._pending = bytearray()
        # The bytes that must have come before it is worth to look at them again.
        self._need = 8
        self.offset = 0  # where the next message starts
        self.ended = False

    @property
    def left(self) -> int:
        """The number of bytes that wait for the rest of their message."""
        return 0 if self.ended else len(self._pending)

    def feed(self, data: bytes) -> Iterator[IpcMessage]:
        """Yield the messages that `data` completes.

        This is a generator, so that the caller handles a message before an error in a later one is raised.
        """
        self._pending += b"" if self.ended else data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> IpcMessage | None:
        """Remove and return the next message, once it is whole."""
        if not self.offset and self._pending.startswith(FILE_MAGIC):
            self._drop(len(FILE_MAGIC))
        if self.ended or len(self._pending) < self._need:
            return None
        if self._pending[:4] != _CONTINUATION:
            raise broken("no Arrow message starts here", self.offset)
        size = int.from_bytes(self._pending[4:8], "little", signed=True)
        if size == 0:
            self._drop(8)
            self.ended = True
            return None
        if not 0 < size <= MAX_METADATA_BYTES or size % 8:
            raise broken(f"a message says that its metadata has {size} bytes", self.offset)
        self._need = 8 + size
        if len(self._pending) < self._need:
            return None
        kind, body = self._kind_and_body(bytes(self._pending[8 : 8 + size]))
        self._need += body
        if len(self._pending) < self._need:
            return None
        message = IpcMessage(self.offset, bytes(self._pending[: self._need]), kind)
        self._drop(self._need)
        return message

    def _kind_and_body(self, metadata: bytes) -> tuple[int, int]:
        """Return the kind of a message and the size of its body."""
        try:
            message = Flatbuffer.root(metadata)
            kind, body = message.scalar(1, "<B"), message.scalar(3, "<q")
        except ValueError as error:
            raise broken(f"a message can not be read: {error}", self.offset) from None
        if not 0 <= body <= MAX_BODY_BYTES:
            raise DataError(
                f"a message says that its body has {body} bytes",
                where=f"byte {self.offset}",
                hint=f"At most {MAX_BODY_BYTES}: write the file with smaller record batches",
            )
        return kind, body

    def _drop(self, size: int) -> None:
        del self._pending[:size]
        self.offset += size
        self._need = 8


class Dictionaries:
    """Counts the bytes of a stream's dictionaries: those in use, and new ones that no batch has used yet."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._current_bytes = 0
        self._unused_bytes = 0

    def add(self, message: IpcMessage, size: int) -> None:
        """Count a dictionary of `size` bytes (from `check_size`). `DataError` if all together are too large."""
        header = Flatbuffer.root(_metadata(message)).table(2)
        assert header is not None, "check_size has read it"
        dictionary_id, is_delta = header.scalar(0, "<q"), bool(header.scalar(2, "<B"))
        if not is_delta:
            self._current_bytes -= self._sizes.pop(dictionary_id, 0)
        self._sizes[dictionary_id] = self._sizes.get(dictionary_id, 0) + size
        self._current_bytes += size
        self._unused_bytes += size
        if max(self._current_bytes, self._unused_bytes) > MAX_BODY_BYTES:
            raise broken(f"its dictionaries take more than {MAX_BODY_BYTES} bytes together", message.offset)

    def used(self) -> None:
        """Note that Arrow has read a batch, and with it all dictionaries added before."""
        self._unused_bytes = 0


def _metadata(message: IpcMessage) -> bytes:
    return message.data[8 : 8 + int.from_bytes(message.data[4:8], "little")]


def check_size(message: IpcMessage) -> int:
    """Return the bytes of memory that a record or dictionary batch takes once Arrow has read it.

    `DataError` if it claims more than `MAX_MESSAGE_ROWS` values, or decompresses to more than `MAX_BODY_BYTES`.
    """
    metadata = _metadata(message)
    try:
        header = Flatbuffer.root(metadata).table(2)
        if header is not None and message.kind == DICTIONARY_BATCH:
            header = header.table(1)
        if header is None:
            raise ValueError("it has no header")
        rows = header.scalar(0, "<q")
        nodes, buffers = header.pairs(1), header.pairs(2)
        compressed = header.table(3) is not None
    except ValueError as error:
        raise broken(f"a message can not be read: {error}", message.offset) from None
    if max([rows, *(length for length, _ in nodes)]) > MAX_MESSAGE_ROWS:
        raise broken(f"a message says that it holds more than {MAX_MESSAGE_ROWS} values", message.offset)
    body = memoryview(message.data)[8 + len(metadata) :]
    unpacked = 0
    if compressed:
        for start, length in buffers:
            if length >= 8 and 0 <= start <= len(body) - 8:
                # -1 means that this buffer is not compressed.
                unpacked += max(int.from_bytes(body[start : start + 8], "little", signed=True), 0)
        if unpacked > MAX_BODY_BYTES:
            raise broken(f"a message unpacks to {unpacked} bytes, more than {MAX_BODY_BYTES}", message.offset)
    return max(len(body), unpacked)
