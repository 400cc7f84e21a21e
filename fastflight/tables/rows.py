"""Splits text files into rows. How the bytes arrive never changes the rows.

`RowSplitter.feed` takes pieces of a file and returns what they complete, in file order: each `RowBlock` is one or more
whole rows that end in a line feed, each `RejectedRow` is a part of the file that cannot be a row. `finish()` returns
the rest; the last row may lack the line feed.

With a `delimiter` the rows are CSV: a cell that starts with a quote runs to its closing quote and may hold line feeds.
A doubled quote in it stands for one quote. In a cell that does not start with a quote, quotes are ordinary characters.
Without one every line feed ends a row.

A quote that is never closed would swallow the rest of the file. Therefore, if a row has not ended after
`MAX_ROW_BYTES`, or at the end of the file, only its first line is rejected, and reading continues at the next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fastflight.tables.summary import RejectedRow

# An incomplete row is held in memory: this is far above any row a device writes, and far below what hurts a server.
MAX_ROW_BYTES = 1024 * 1024
# A large feed is handled in steps of this size, so blocks have about this size, and no block holds an overlong row.
BLOCK_BYTES = 64 * 1024
# Up to this many quotes, a regular expression is faster than numpy.
_FEW_QUOTES = 16


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Whole rows: `data` is the part of the file that begins at `offset`."""

    offset: int
    data: bytes


# Rows as they stand in the file, or what was read of them while the types of their columns were found.
Rows: TypeAlias = RowBlock | pa.RecordBatch


class RowSplitter:
    """Splits one file, whose first row begins at `offset`. Offsets of rows count from `marks` bytes before the file."""

    def __init__(
        self,
        delimiter: bytes = b"",
        quote: bytes = b'"',
        offset: int = 0,
        marks: int = 0,
        block_bytes: int = BLOCK_BYTES,
        *,
        trim: bool = False,
    ) -> None:
        self._block_bytes = block_bytes
        self._delimiter, self._quote = delimiter, quote if delimiter else b""
        if delimiter:
            self._row = re.compile(row_pattern(delimiter, quote, trim=trim))
            self._rows = re.compile(rb"(?:" + self._row.pattern + rb"\n)*+")
        self._pending = bytearray()  # the file from `_offset` on; starts at the start of a row
        self.offset = offset
        self._offset = offset + marks
        self._open = False  # the pending row ends inside a quoted cell
        self._skipping = False  # inside a line that was too long, up to its line feed

    def feed(self, data: bytes) -> list[RowBlock | RejectedRow]:
        found: list[RowBlock | RejectedRow] = []
        for start in range(0, len(data), self._block_bytes):
            piece = data[start : start + self._block_bytes] if len(data) > self._block_bytes else data
            self._pending += piece
            if self._skipping and not self._skip_line():
                continue
            # Scanning is needed only if these bytes can end the pending row.
            if (self._quote in piece if self._open else b"\n" in piece) or len(self._pending) > MAX_ROW_BYTES:
                self._advance(found)
        return found

    def finish(self) -> list[RowBlock | RejectedRow]:
        found: list[RowBlock | RejectedRow] = []
        while self._pending:
            if self._whole_rows() < len(self._pending) and self._open:
                self._reject_line(found, "a quote is not closed before the file ends")
                self._advance(found)
            else:
                self._emit(found, len(self._pending))
        return found

    def _advance(self, found: list[RowBlock | RejectedRow]) -> None:
        """Emit the whole rows, and reject the pending one if it is too long."""
        while self._pending:
            end = self._whole_rows()
            if end and not self._starts_too_long(end):
                self._emit(found, end)
            elif len(self._pending) <= MAX_ROW_BYTES:
                return
            elif self._pending.find(b"\n", 0, MAX_ROW_BYTES + 1) >= 0:
                self._reject_line(found, f"a quote is not closed within {MAX_ROW_BYTES} bytes")
            else:
                found.append(RejectedRow(self._offset, f"the row is longer than {MAX_ROW_BYTES} bytes"))
                if not self._skip_line():
                    return

    def _whole_rows(self) -> int:
        """Return the end of the last whole row, and find out whether the row after it ends inside of quotes."""
        self._open = False
        if not self._quote or self._quote not in self._pending:
            return self._pending.rfind(b"\n") + 1
        if self._pending.count(self._quote) > _FEW_QUOTES and (end := self._regular_end()) is not None:
            return end
        match = self._rows.match(self._pending)
        end = match.end() if match else 0
        rest = self._row.match(self._pending, end)
        self._open = rest is None or rest.end() < len(self._pending)
        return end

    def _regular_end(self) -> int | None:
        """Do the same in a fifth of the time, if every second quote is where a cell can start, as in most files."""
        data = np.frombuffer(bytes(self._pending), np.uint8)
        quotes = np.flatnonzero(data == self._quote[0])
        before = data[quotes[0::2] - 1]
        regular = (before == ord("\n")) | (before == self._delimiter[0]) | (before == self._quote[0])
        regular[0] |= quotes[0] == 0
        if not regular.all():
            return None
        end = self._pending.rfind(b"\n") + 1
        inside = int(np.searchsorted(quotes, end))
        if inside % 2:
            end = self._pending.rfind(b"\n", 0, int(quotes[inside - 1])) + 1
        self._open = bool(len(quotes) % 2)
        return end

    def _starts_too_long(self, end: int) -> bool:
        """Return whether the first row is too long. Later rows came with the last piece, which is smaller."""
        if end <= MAX_ROW_BYTES + 1:
            return False
        if not self._quote:
            return self._pending.find(b"\n", 0, MAX_ROW_BYTES + 1) < 0
        match = self._row.match(self._pending)
        return match is None or match.end() > MAX_ROW_BYTES

    def _emit(self, found: list[RowBlock | RejectedRow], end: int) -> None:
        found.append(RowBlock(self._offset, bytes(self._pending[:end])))
        self._drop(end)

    def _drop(self, end: int) -> None:
        del self._pending[:end]
        self._offset += end

    def _reject_line(self, found: list[RowBlock | RejectedRow], reason: str) -> None:
        """Reject the first line of a row whose quote never closes, and continue after it."""
        found.append(RejectedRow(self._offset, reason))
        self._drop(self._pending.find(b"\n") + 1 or len(self._pending))

    def _skip_line(self) -> bool:
        end = self._pending.find(b"\n") + 1
        self._skipping = not end
        self._open = False
        self._drop(end or len(self._pending))
        return bool(end)


def row_pattern(delimiter: bytes, quote: bytes = b'"', *, trim: bool = False) -> bytes:
    """Return a regular expression for one CSV row. It never backtracks. `trim`: blanks may precede a quote."""
    other, mark = rb"[^\n" + re.escape(delimiter) + rb"]*+", re.escape(quote)
    opening = (rb"[ \t]*+" if trim else b"") + mark
    quoted = opening + rb"(?:[^" + mark + rb"]++|" + mark * 2 + rb")*+" + mark
    cell = rb"(?:" + quoted + other + rb"|(?!" + opening + rb")" + other + rb")"
    return cell + rb"(?:" + re.escape(delimiter) + cell + rb")*+"
