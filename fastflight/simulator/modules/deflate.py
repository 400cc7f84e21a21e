"""MicroPython's `deflate.DeflateIO`, over zlib."""

from __future__ import annotations

import zlib
from typing import Any

AUTO, RAW, ZLIB, GZIP = range(4)
# Window sizes, as powers of two: reading accepts zlib's largest. MicroPython writes with 256 bytes by default, but zlib
# cannot write with less than 512.
MAX_WINDOW = 15
MIN_WINDOW = 9
# Compressed bytes read from the underlying stream at a time.
PIECE = 512


class DeflateIO:
    """Compresses written data into `stream`, or decompresses the data read from `stream`."""

    def __init__(self, stream: Any, format: int = AUTO, wbits: int = 0, close: bool = False) -> None:
        self._stream = stream
        self._format = format
        self._window = min(MAX_WINDOW, max(MIN_WINDOW, wbits))
        self._close = close
        self._packer: Any = None
        self._unpacker: Any = None
        self._ready = bytearray()

    def write(self, data: Any) -> int:
        if self._packer is None:
            bits = {RAW: -self._window, GZIP: 16 + self._window}.get(self._format, self._window)
            # MicroPython writes only fixed Huffman codes; zlib alone would choose shorter ones.
            self._packer = zlib.compressobj(wbits=bits, strategy=zlib.Z_FIXED)
        self._stream.write(self._packer.compress(data))
        return len(memoryview(data).cast("B"))

    def read(self, count: int = -1) -> bytes:
        while count < 0 or len(self._ready) < count:
            if not self._fill(count):
                break
        size = len(self._ready) if count < 0 else count
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readline(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self.read(1)
            if not piece:
                break
            line += piece
        return line

    def close(self) -> None:
        if self._packer is not None:
            self._stream.write(self._packer.flush())
            self._packer = None
        if self._close:
            self._stream.close()

    def __enter__(self) -> DeflateIO:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _fill(self, count: int) -> bool:
        if self._unpacker is not None and self._unpacker.eof:
            return False
        rest = b"" if self._unpacker is None else self._unpacker.unconsumed_tail
        piece = rest or self._stream.read(PIECE)
        if not piece:
            # zlib may still hold output after it has taken the last piece.
            left = b"" if self._unpacker is None else self._unpacker.flush()
            self._ready += left
            return bool(left)
        if self._unpacker is None:
            self._unpacker = zlib.decompressobj(self._bits(piece))
        try:
            self._ready += self._unpacker.decompress(piece, 0 if count < 0 else max(count, PIECE))
        except zlib.error:
            raise ValueError("invalid deflate stream") from None
        return True

    def _bits(self, head: bytes) -> int:
        kind = self._format
        if kind == AUTO:
            kind = GZIP if head[:2] == b"\x1f\x8b" else ZLIB if head[0] & 15 == 8 else RAW
        return {RAW: -MAX_WINDOW, ZLIB: MAX_WINDOW, GZIP: 16 + MAX_WINDOW}[kind]
