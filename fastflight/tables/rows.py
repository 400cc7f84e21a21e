"""Splits text files into rows. How the bytes arrive never changes the rows.

`RowSplitter.feed` takes pieces of a file and returns what they complete, in file order: each `RowBlock` is one or more
whole rows that end in a line feed, each `RejectedRow` is a part of the file that cannot be a row. `finish()` returns
the rest; the last row may lack the line feed.

With `delimiters` the rows are CSV: a cell that starts with a quote runs to its closing quote and may hold line feeds. A
doubled quote in it stands for one quote. In a cell that does not start with a quote, quotes are ordinary characters.
Without `delimiters` every line feed ends a row.

A quote that is never closed would swallow the rest of the file. Therefore, if a row has not ended after
`MAX_ROW_BYTES`, or at the end of the file, only its first line is rejected, and reading continues at the next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fastflight.tables.summary import RejectedRow

# An incomplete row is held in memory: this is far above any row a device writes, and far below what hurts a server.
MAX_ROW_BYTES = 1024 * 1024
# A large feed is handled in steps of this size, so blocks have about this size, and no block holds an overlong row.
# pyarrow's CSV reader is fastest at this size: its buffers then come from the heap and not from the kernel.
BLOCK_BYTES = 64 * 1024
# Up to this many quotes, a regular expression is faster than numpy.
_FEW_QUOTES = 16


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Whole rows: `data` is the part of the file that begins at `offset`."""

    offset: int
    data: bytes


class RowSplitter:
    """Splits one file. A byte order mark before the first row belongs to no row.

    For CSV, `delimiter` becomes the first of `delimiters` that occurs outside of quotes in the first line of the file,
    or the first one if none does. It is None until then, and for other formats.
    """

    def __init__(self, delimiters: bytes = b"") -> None:
        self.delimiter: bytes | None = None
        self._delimiters = delimiters
        self._begun = False
        self._opening = re.compile(b'"')
        self._pending = bytearray()  # the file from `_offset` on; starts at the start of a row
        self._offset = 0
        self._at = 0  # scanned so far
        self._quoted = False  # the byte at `_at` is inside a quoted cell
        self._end = 0  # end of the last whole row in what was scanned
        self._skipping = False  # inside a line that was too long, up to its line feed

    def _begin(self, *, ended: bool) -> bool:
        """Skip a byte order mark and find the delimiter. Returns False if more bytes are needed for that."""
        if self._offset == 0:
            if not ended and len(self._pending) < len(BOM) and BOM.startswith(self._pending):
                return False
            if self._pending.startswith(BOM):
                self._drop(len(BOM))
        match = _FIRST_LINE.match(self._pending)
        if self._delimiters and match:
            if not (match[2] or ended or len(self._pending) > MAX_ROW_BYTES):
                return False
            unquoted = _QUOTED_TEXT.sub(b"", match[1])
            present = [bytes((code,)) for code in self._delimiters if code in unquoted]
            self.delimiter = present[0] if present else self._delimiters[:1]
            self._opening = re.compile(rb"(?<![^\n" + re.escape(self.delimiter) + rb'])"')
        self._begun = True
        return True

    def feed(self, data: bytes) -> list[RowBlock | RejectedRow]:
        found: list[RowBlock | RejectedRow] = []
        for start in range(0, len(data), BLOCK_BYTES):
            self._pending += data[start : start + BLOCK_BYTES] if len(data) > BLOCK_BYTES else data
            if self._begun or self._begin(ended=False):
                self._advance(found)
        return found

    def finish(self) -> list[RowBlock | RejectedRow]:
        found: list[RowBlock | RejectedRow] = []
        if not self._begun:
            self._begin(ended=True)
            self._advance(found)
        while self._pending:
            if self._quoted and not self._closes_at_the_end():
                self._refuse_line(found, "a quote is not closed before the file ends")
                self._advance(found)
            else:
                self._emit(found, len(self._pending))
        return found

    def _closes_at_the_end(self) -> bool:
        """Return whether the last byte is a closing quote. Before the end it could be the first of a doubled one."""
        return self._at == len(self._pending) - 1

    def _advance(self, found: list[RowBlock | RejectedRow]) -> None:
        while self._pending:
            if self._skipping and not self._skip_line():
                return
            self._scan()
            if self._end and not self._starts_too_long():
                self._emit(found, self._end)
            elif len(self._pending) <= MAX_ROW_BYTES:
                return
            else:
                self._refuse_long(found)

    def _starts_too_long(self) -> bool:
        """Return whether the first row is too long. Later rows came with the last piece, which is smaller."""
        if self._end <= MAX_ROW_BYTES + 1:
            return False
        if self.delimiter is None:
            return self._pending.find(b"\n", 0, MAX_ROW_BYTES + 1) < 0
        match = row_pattern(self.delimiter).match(self._pending)
        return match is None or match.end() > MAX_ROW_BYTES + 1

    def _emit(self, found: list[RowBlock | RejectedRow], end: int) -> None:
        found.append(RowBlock(self._offset, bytes(self._pending[:end])))
        self._drop(end)

    def _drop(self, end: int) -> None:
        del self._pending[:end]
        self._offset += end
        self._at = max(self._at - end, 0)
        self._end = 0
        if not self._pending:
            self._quoted = False

    def _refuse_long(self, found: list[RowBlock | RejectedRow]) -> None:
        if self._pending.find(b"\n", 0, MAX_ROW_BYTES + 1) < 0:
            found.append(RejectedRow(self._offset, f"the row is longer than {MAX_ROW_BYTES} bytes"))
            self._skipping = True
        else:
            self._refuse_line(found, f"a quote is not closed within {MAX_ROW_BYTES} bytes")

    def _refuse_line(self, found: list[RowBlock | RejectedRow], reason: str) -> None:
        """Reject the first line of a row whose quote never closes, and continue after it."""
        found.append(RejectedRow(self._offset, reason))
        end = self._pending.find(b"\n") + 1 or len(self._pending)
        self._at, self._quoted = end, False
        self._drop(end)

    def _skip_line(self) -> bool:
        end = self._pending.find(b"\n") + 1
        self._skipping = not end
        self._at, self._quoted = end or len(self._pending), False
        self._drop(end or len(self._pending))
        return bool(end)

    def _scan(self) -> None:
        """Scan the new bytes, and update `_at`, `_quoted` and `_end`."""
        pending = self._pending
        if self.delimiter is None or (not self._quoted and pending.find(b'"', self._at) < 0):
            self._end = pending.rfind(b"\n", self._at) + 1 or self._end
            self._at = len(pending)
            return
        regular: bool | None = None
        while self._at < len(pending):
            if self._quoted:
                if not self._leave_quotes():
                    return
                continue
            if regular is None:
                regular = pending.count(b'"', self._at) > _FEW_QUOTES and self._scan_regular()
            if not regular:
                match = self._opening.search(pending, self._at)
                stop = match.start() if match else len(pending)
                self._end = pending.rfind(b"\n", self._at, stop) + 1 or self._end
                self._quoted = match is not None
                self._at = stop + 1 if match else stop
            elif self._at < len(pending):
                return

    def _leave_quotes(self) -> bool:
        """Move `_at` behind the closing quote. False if it has not come, or may be the first of a doubled one."""
        match = _QUOTED_REST.match(self._pending, self._at)
        self._at = match.end() if match else self._at
        if self._at + 1 >= len(self._pending):
            return False
        self._at += 1
        self._quoted = False
        return True

    def _scan_regular(self) -> bool:
        """Scan all new bytes in one step with numpy.

        This works if the first, third, fifth quote and so on are where a cell can start, as in most files. Otherwise
        return False.
        """
        start = self._at
        rest = np.frombuffer(bytes(self._pending[start:]), np.uint8)
        quotes = np.flatnonzero(rest == ord('"'))
        opening, closing = quotes[0::2], quotes[1::2]
        before = rest[opening - 1]
        regular = (before == ord("\n")) | (before == ord(self.delimiter or b","))
        regular[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
        if opening[0] == 0:
            regular[0] = start == 0 or bytes(self._pending[start - 1 : start]) in (b"\n", self.delimiter)
        if not regular.all():
            return False
        stop = len(rest)
        if len(quotes) % 2:
            stop, self._quoted, self._at = int(quotes[-1]), True, start + len(rest)
            # All doubled quotes in the open cell are complete, so that `_at` can be at the end.
        elif quotes[-1] == len(rest) - 1:
            self._quoted, self._at = True, start + len(rest) - 1
        else:
            self._at = start + len(rest)
        while (newline := self._pending.rfind(b"\n", start, start + stop) - start) >= 0:
            inside = int(np.searchsorted(quotes, newline))
            if inside % 2 == 0:
                self._end = start + newline + 1
                break
            stop = int(quotes[inside - 1])
        return True


BOM = b"\xef\xbb\xbf"
_FIRST_LINE = re.compile(rb"[\r\n]*+([^\n]*+)(\n?)")
_QUOTED_TEXT = re.compile(rb'"(?:[^"]++|"")*+"?')
_QUOTED_REST = re.compile(rb'(?:[^"]++|"")*+')


def cell_pattern(delimiter: bytes) -> bytes:
    """Return a regular expression for one CSV cell. It never backtracks."""
    other = rb"[^\n" + re.escape(delimiter) + rb"]*+"
    return rb'(?:"(?:[^"]++|"")*+"?' + other + rb'|(?!")' + other + rb")"


def row_pattern(delimiter: bytes) -> re.Pattern[bytes]:
    """Return a regular expression for one CSV row, with its line feed if there is one."""
    cell = cell_pattern(delimiter)
    return re.compile(cell + rb"(?:" + re.escape(delimiter) + cell + rb")*+\n?")
