"""Turns a JSON array of objects into JSON lines, as `json.dump` of a list writes it and as loggers append to it.

Byte for byte: brackets and commas between the objects, and line ends within them, are replaced, so offsets in the file
stay true. What is no array of objects does not belong here: ask `begins_array`.
"""

from __future__ import annotations

import re

from fastflight.tables.rows import MAX_ROW_BYTES

_BLANK = rb"[ \t\r\n]{0,256}"
_BEGINS = re.compile(rb"%b\[%b\{" % (_BLANK, _BLANK)).match
_MAY_BEGIN = re.compile(rb"%b(?:\[%b)?" % (_BLANK, _BLANK)).fullmatch
# A string, perhaps without its end, or a character that structures the text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\?)|[\[\]{},\r\n]', re.DOTALL)


def begins_array(head: bytes, *, ended: bool) -> bool | None:
    """Whether a file that begins with `head` is an array of objects; None if more of it is needed."""
    if not ended and _MAY_BEGIN(head):
        return None
    return _BEGINS(head) is not None


class ArrayLines:
    """Feed it the bytes of the array, in any chunks."""

    def __init__(self) -> None:
        self._depth = 0
        # The beginning of a string whose end has not come.
        self._open = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return what `data` completes."""
        self._open += data
        if len(self._open) > len(data) and b'"' not in data and len(self._open) <= MAX_ROW_BYTES:
            return b""
        text, self._open = bytes(self._open), bytearray()
        lines = _TOKEN.sub(self._line, text)
        return lines + self.finish() if len(self._open) > MAX_ROW_BYTES else lines  # a quote that is never closed

    def finish(self) -> bytes:
        """Return the rest of an array that was cut off in a string."""
        rest, self._open = bytes(self._open), bytearray()
        return rest

    def _line(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token in b"[{":
            self._depth += 1
            return b" " if self._depth == 1 else token
        if token in b"]}":
            self._depth = max(self._depth - 1, 0)
            return b"\n" if self._depth == 0 else token
        if token == b",":
            return b"\n" if self._depth == 1 else token
        if token in b"\r\n":
            return b" "
        if match[1] != b'"':
            self._open += token
            return b""
        return token
