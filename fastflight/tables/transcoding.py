"""Turns the bytes of a text file into UTF-8 with LF or CRLF line ends, however they arrive.

Byte order marks at the start are dropped; they name the encoding unless `encoding` does. If the first line end is a
lone carriage return, or LF and CR in this order, each of these becomes a line feed. Bytes that an encoding does not
have stay as they are: they are not UTF-8, so the reader rejects their rows, and no others. Offsets of rows count the
bytes of the UTF-8 text.
"""

from __future__ import annotations

import codecs
import re

from fastflight.errors import RequestError

BOM = codecs.BOM_UTF8
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LINE_END = re.compile(rb"\r\n|\n\r(?=[^\n])|\n(?=[^\r]|\r\n)|\r(?=[^\n])")
# Bytes from which UTF-16 without a byte order mark is recognised: every second one is NUL.
_UTF16_BYTES = 8


class Transcoder:
    """Transcodes one file. Call `feed` with its bytes, then `finish`."""

    def __init__(self, encoding: str | None = None) -> None:
        self._decoder: codecs.IncrementalDecoder | None = None
        self._errors = "strict"
        self._encoding: str | None = None
        if encoding is not None:
            try:
                self._set(codecs.lookup(encoding).name)
            except LookupError:
                raise RequestError(
                    f"no encoding is named {encoding!r}", where="encoding", hint="For example utf-8, cp1252 or utf-16"
                ) from None
        self._start = b""
        self._started = False
        self.marks = 0  # bytes of the byte order marks at the start
        self._line_end: bytes | None = None
        self._held = b""  # a line end of which more may follow

    @property
    def is_known(self) -> bool:
        """Whether the request, or a byte order mark, has named the encoding."""
        return self._encoding is not None

    def read_as(self, encoding: str, data: bytes) -> bytes:
        """Take `encoding` from now on. Return `data`, which was returned unchanged so far, in it."""
        self._set(encoding)
        return self._decoded(data, final=False)

    def feed(self, data: bytes) -> bytes:
        if self._started:
            return self._with_line_ends(self._decoded(data, final=False), final=False)
        self._start += data
        return b"" if len(self._start) < _UTF16_BYTES else self._begin(final=False)

    def finish(self) -> bytes:
        if not self._started:
            return self._begin(final=True)
        return self._with_line_ends(self._decoded(b"", final=True), final=True)

    def _begin(self, *, final: bool) -> bytes:
        self._started = True
        start, self._start = self._start, b""
        if self._encoding is None:
            even, odd = start[:_UTF16_BYTES:2], start[1:_UTF16_BYTES:2]
            if start.startswith(_UTF16_BOMS):
                self._set("utf-16")
            elif len(odd) == _UTF16_BYTES // 2 and not any(odd) and all(even):
                self._set("utf-16-le")
            elif len(odd) == _UTF16_BYTES // 2 and not any(even) and all(odd):
                self._set("utf-16-be")
        text = self._decoded(start, final=final)
        while text.startswith(BOM):
            text = text[len(BOM) :]
            self.marks += len(BOM)
            self._encoding = self._encoding or "utf-8"
        return self._with_line_ends(text, final=final)

    def _set(self, encoding: str) -> None:
        self._encoding = encoding
        if encoding != "utf-8":
            # UTF-16 and UTF-32 cannot escape single bytes, but may hold half a surrogate pair.
            self._errors = "surrogatepass" if encoding.startswith("utf-") else "surrogateescape"
            self._decoder = codecs.getincrementaldecoder(encoding)(self._errors)

    def _decoded(self, data: bytes, *, final: bool) -> bytes:
        if self._decoder is None:
            return data
        try:
            return self._decoder.decode(data, final).encode(errors=self._errors)
        except UnicodeError:  # the file breaks off within a character
            self._decoder.reset()
            return b"\xff"

    def _with_line_ends(self, data: bytes, *, final: bool) -> bytes:
        if self._line_end == b"\n":
            return data
        data, self._held = self._held + data, b""
        if self._line_end is None:
            if match := _LINE_END.search(data):
                self._line_end = b"\n" if match[0] == b"\r\n" else match[0]
            elif not final:
                return self._hold(data)
            else:
                self._line_end = data[len(data.rstrip(b"\r\n")) :]
        if self._line_end in (b"\n", b""):
            return data
        if not final and self._line_end == b"\n\r":
            data = self._hold(data)
        return data.replace(self._line_end, b"\n")

    def _hold(self, data: bytes) -> bytes:
        """Keep the last line end until the next bytes show whether all of it has come. Return what is before it."""
        text = data.rstrip(b"\r\n")
        self._held = data[len(text) :]
        return text


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
