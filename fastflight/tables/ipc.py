"""The framing of Arrow's IPC streams, and the checks of a message before Arrow reads it.

A message is `FF FF FF FF`, the int32 size of its metadata, the metadata (a flatbuffer `Message`), padding to 8 bytes
and a body; size 0 ends the stream (Arrow columnar format, "Encapsulated message format"). `MessageSplitter` cuts a
stream into messages without looking further than that needs. An IPC *file* is the same stream after the magic
`ARROW1`, followed by a footer that is not needed to read it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fastflight.errors import DataError

# A schema of some thousand columns with their metadata.
MAX_METADATA_BYTES = 4 * 1024 * 1024
# One record batch is held whole. Also the limit for what its buffers say they are when decompressed, and for a stream's
# dictionaries together, which its batches have in common.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Rows cost nothing in columns of nulls: a message of 200 bytes could claim 2^60 of them.
MAX_MESSAGE_ROWS = 16 * 1024 * 1024

FILE_MAGIC = b"ARROW1\0\0"
_CONTINUATION = b"\xff\xff\xff\xff"

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class IpcMessage:
    """One message, whole: its place in the file, its bytes with framing, and its kind (a `MessageHeader` code)."""

    offset: int
    data: bytes
    kind: int


def broken(what: str, offset: int) -> DataError:
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
        """Where field `index` is stored; 0 if it is not."""
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
        """A vector of structs of two int64."""
        slot = self._slot(index)
        if not slot:
            return []
        start = slot + self._unpack("<I", slot)
        count = self._unpack("<I", start)
        if count * 16 > len(self._data) - start - 4:
            raise ValueError("a vector is longer than the metadata")
        return list(struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count]))


class MessageSplitter:
    """Cuts a fed stream into messages. Raises `DataError` where it is no Arrow stream or breaks a limit."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._offset = 0
        self._need = 8
        self._body: int | None = None
        self._kind = 0
        self._begun = False
        self.is_file = False
        self.ended = False

    @property
    def left(self) -> int:
        """Bytes held that are no whole message."""
        return 0 if self.ended else len(self._pending)

    @property
    def offset(self) -> int:
        """Where the next message starts."""
        return self._offset

    def feed(self, data: bytes) -> Iterator[IpcMessage]:
        """The messages that are whole now, lazily: the error of one message comes before the next message."""
        if not self.ended:
            self._pending += data
        while not self.ended and len(self._pending) >= self._need:
            message = self._step()
            if message is not None:
                yield message

    def _step(self) -> IpcMessage | None:
        """Look at the next part of the framing, which has come whole."""
        if self._body is not None:
            message = IpcMessage(self._offset, bytes(self._pending[: self._need]), self._kind)
            self._drop(self._need)
            return message
        if not self._begun and self._pending.startswith(FILE_MAGIC):
            self.is_file = True
            self._drop(len(FILE_MAGIC))
            self._begun = True
            return None
        self._begun = True
        if self._pending[:4] != _CONTINUATION:
            raise broken("no Arrow message starts here", self._offset)
        size = int.from_bytes(self._pending[4:8], "little", signed=True)
        if size == 0:
            self._drop(8)
            self.ended = True
        elif not 0 < size <= MAX_METADATA_BYTES or size % 8:
            raise broken(f"a message says that its metadata has {size} bytes", self._offset)
        elif len(self._pending) < 8 + size:
            self._need = 8 + size
        else:
            self._need = 8 + size + self._look(bytes(self._pending[8 : 8 + size]))
        return None

    def _look(self, metadata: bytes) -> int:
        """Read the size of the body, and remember the kind of the message."""
        try:
            message = Flatbuffer.root(metadata)
            self._kind = message.scalar(1, "<B")
            body = message.scalar(3, "<q")
        except ValueError as error:
            raise broken(f"a message can not be read: {error}", self._offset) from None
        if not 0 <= body <= MAX_BODY_BYTES:
            raise DataError(
                f"a message says that its body has {body} bytes",
                where=f"byte {self._offset}",
                hint=f"At most {MAX_BODY_BYTES}: write the file with smaller record batches",
            )
        self._body = body
        return body

    def _drop(self, size: int) -> None:
        del self._pending[:size]
        self._offset += size
        self._need = 8
        self._body = None


class Dictionaries:
    """The bytes that a stream's dictionaries take: the ones in use, and the ones that no batch has used yet."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._held = 0
        self._waiting = 0

    def add(self, message: IpcMessage, size: int) -> None:
        """Count a dictionary of `size` bytes, by `check_size`. `DataError` if all of them are too large."""
        header = Flatbuffer.root(_metadata(message)).table(2)
        assert header is not None, "its size was looked at"
        name, grows = header.scalar(0, "<q"), bool(header.scalar(2, "<B"))
        if not grows:
            self._held -= self._sizes.pop(name, 0)
        self._sizes[name] = self._sizes.get(name, 0) + size
        self._held += size
        self._waiting += size
        if max(self._held, self._waiting) > MAX_BODY_BYTES:
            raise broken(f"its dictionaries take more than {MAX_BODY_BYTES} bytes together", message.offset)

    def used(self) -> None:
        """Note that a batch was read, with the dictionaries before it."""
        self._waiting = 0


def _metadata(message: IpcMessage) -> bytes:
    return message.data[8 : 8 + int.from_bytes(message.data[4:8], "little")]


def check_size(message: IpcMessage) -> int:
    """The bytes that a batch takes when it is read.

    `DataError` for a batch that is far larger than its bytes: too many rows, or buffers that unpack to too much.
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
                # -1 means that this buffer was left as it is.
                unpacked += max(int.from_bytes(body[start : start + 8], "little", signed=True), 0)
        if unpacked > MAX_BODY_BYTES:
            raise broken(f"a message unpacks to {unpacked} bytes, more than {MAX_BODY_BYTES}", message.offset)
    return max(len(body), unpacked)
