"""How a CSV file is written, and how its rows are divided into cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from fastflight.errors import DataError, nearest

DELIMITERS = ("\t", ";", "|", ",", " ")
# The text of a cell without its quotes, and whether it was quoted.
Cell: TypeAlias = tuple[str, bool]
# The delimiter of a table of one column whose cells may hold any other. The unit separator is in no text.
NO_DELIMITER = "\x1f"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written.

    `names`: one name for each cell of a row, empty for cells that are always empty. `start`: where the first row of
    data begins. `headers`: the header's lines, which may be repeated among the rows. `narrow`: the number of cells of
    most rows, if it is less than that of the names. `trim`: blanks around delimiters are not part of a cell.
    """

    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    comment: str | None = None
    trim: bool = False
    names: tuple[str, ...] = ()
    start: int = 0
    headers: frozenset[bytes] = frozenset()
    narrow: int | None = None
    notes: tuple[str, ...] = ()

    def normalised(self, rows: bytes) -> bytes:
        """Return whole rows without the blanks around their cells, if these are not part of the cells."""
        if not self.trim:
            return rows
        delimiter = self.delimiter.encode()
        blank = b" " if delimiter == b"\t" else b"[ \\t]"
        gap = rb"[ \t]+" if delimiter == b" " else blank + b"*" + re.escape(delimiter) + blank + b"*"
        rows = re.sub(blank + rb"*(\r?\n)" + blank + b"*", rb"\1", rows.strip(b" " if delimiter == b"\t" else b" \t"))
        if self.quote.encode() not in rows:
            return re.sub(gap, delimiter, rows)
        mark = re.escape(self.quote.encode())
        parts = mark + rb"[^" + mark + rb"]*+" + mark + rb"|" + gap
        return re.sub(parts, lambda part: part[0] if part[0].startswith(self.quote.encode()) else delimiter, rows)

    def cells(self, row: str) -> list[Cell]:
        """Return the cells of a row as it stands in the file, without their quotes, and whether each was quoted."""
        row = self.normalised(row.encode()).decode() if self.trim else row
        row = row.rstrip("\n").removesuffix("\r")
        if self.quote not in row:
            return [(cell, False) for cell in row.split(self.delimiter)]
        cell_at = _cell_regex(self.delimiter, self.quote)
        cells, at = [], 0
        while at <= len(row):
            match = cell_at.match(row, at)
            if match is None or match["quoted"] is None:
                raw = match[0] if match else row[at:].partition(self.delimiter)[0]
                cells.append((raw, False))
            else:
                raw = match[0]
                cells.append((match["quoted"].replace(self.quote * 2, self.quote) + match["rest"], True))
            at += len(raw) + 1
        return cells

    def texts(self, row: str) -> list[str]:
        """Return the cells of a row without quotes and blanks around them."""
        return [cell.strip(" \t") for cell, _ in self.cells(row)]


@lru_cache(maxsize=64)
def _cell_regex(delimiter: str, quote: str) -> re.Pattern[str]:
    other, mark = f"[^\n{re.escape(delimiter)}]*+", re.escape(quote)
    return re.compile(f"{mark}(?P<quoted>(?:[^{mark}]++|{mark}{mark})*+){mark}(?P<rest>{other})|(?!{mark}){other}")


def is_spaced(line: str, delimiter: str) -> bool:
    """Whether blanks follow, or precede, each delimiter of a line."""
    return 0 < line.count(delimiter) == max(line.count(delimiter + " "), line.count(" " + delimiter))


def require_names(header: Sequence[str], names: Sequence[str]) -> None:
    """Raise `DataError` if a column of the schema is not in the header of the file."""
    for name in names:
        if name not in header:
            raise DataError(f"the file has no column {name!r}", where="header", hint=nearest(name, header))
