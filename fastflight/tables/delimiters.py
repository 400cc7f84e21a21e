"""Finds the delimiter, the quote and the decimal sign of a CSV file, and whether blanks surround its delimiters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fastflight.tables.codec import TextOptions
from fastflight.tables.dialect import DELIMITERS, NO_DELIMITER, Dialect, is_spaced
from fastflight.tables.kinds import is_value

_COMMA_NUMBER = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?").fullmatch
_POINT_NUMBER = re.compile(r"[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?").fullmatch
_SINGLE_QUOTED = re.compile(r"(?:^|[,;\t|])[ \t]*'[^']*'[ \t]*(?=[,;\t|]|$)")


def dialect_of(delimiter: str, line: str, options: TextOptions) -> Dialect:
    """Return the dialect of a delimiter. It trims blanks if they follow, or precede, each delimiter of a line."""
    trim = delimiter == " " or is_spaced(line, delimiter)
    return Dialect(delimiter, trim=trim, decimal=options.decimal or ("." if delimiter == "," else ","))


def _is_padded(rows: Sequence[str], dialect: Dialect) -> bool:
    """Whether there are blanks around cells, and each of these cells holds a value."""
    cells = [cell for row in rows for cell, _ in dialect.cells(row) if cell.strip(" \t") and cell != cell.strip(" \t")]
    return len(cells) > 1 and all(is_value(cell.strip(" \t")) for cell in cells)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A dialect that may be that of the file: its rows, and the most common number of their cells.

    `first`: the first row of that width, as the next one is. `score`: the share of rows and cells that fit.
    """

    dialect: Dialect
    rows: Sequence[Sequence[str]]
    width: int
    first: int
    score: float

    def is_better(self, other: _Candidate) -> bool:
        """Whether this is the dialect, of these two. Titles may hold any delimiter; names have that of the file."""
        if self.first > other.first:
            return self.score >= other.score and len(other.rows[self.first]) != other.width
        if self.first < other.first:
            return not other.is_better(self)
        return self.score > other.score

    def divides_alike(self, other: _Candidate) -> bool:
        """Whether both divide all rows but titles in the same way, as tabs and blanks do where there are only tabs."""
        return self.width == other.width and self.rows[self.first :] == other.rows[self.first :]

    def has_decimal_commas(self) -> bool:
        """Whether all rows are alike, and their commas are those of numbers."""
        cells = [cell for row in self.rows[1:] or self.rows for cell in row if "," in cell]
        return bool(cells) and self.is_even() and all(map(_COMMA_NUMBER, cells))

    def is_even(self) -> bool:
        """Whether all rows have as many cells."""
        return all(len(row) == self.width for row in self.rows)


def delimited(texts: Sequence[str], options: TextOptions) -> Dialect:
    """Find delimiter, quote and blanks around delimiters.

    Delimiters that also divide the line of names, or one that comes earlier, go before others. Among these, that one is
    chosen for which most rows have the most common number of cells, and most cells hold values.
    """
    first = texts[0] if texts else ""
    single = '"' not in "".join(texts) and sum(len(_SINGLE_QUOTED.findall(text)) for text in texts) > 1
    quote = "'" if single else '"'
    best: _Candidate | None = None
    with_decimals: _Candidate | None = None
    joined = "\n".join(texts)
    for delimiter in () if options.delimiter else filter(joined.__contains__, DELIMITERS):
        dialect = replace(dialect_of(delimiter, first, options), quote=quote)
        divided = [dialect.texts(text) for text in texts]
        rows = divided[1:] or divided
        width, count = max(Counter(map(len, rows)).items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        values = _share_of_values(rows, width, delimiter)
        score = count / len(rows) * (0.3 + values)
        found = _Candidate(dialect, divided, width, _first_of_two(divided, width), score)
        if width < 2 or (best is not None and best.divides_alike(found)):
            continue
        if with_decimals is None and found.has_decimal_commas():
            with_decimals = found
        least = 0.5 if delimiter == " " else 0.0 if delimiter in first else 0.05 if count == len(rows) else 0.25
        if values < least:
            continue  # prose
        if delimiter == " " and best is not None and best.dialect.delimiter != "\t" and best.is_even():
            continue  # blanks in names and around numbers
        if score > 0.25 and (best is None or found.is_better(best)):
            best = found
    if best is None or best.dialect.delimiter == ",":
        best = with_decimals or best
    dialect = best.dialect if best else dialect_of(options.delimiter or _plain_delimiter(texts), first, options)
    if len(texts) > 1 and not options.delimiter and _is_one_column(texts, dialect, best.score if best else 0.25):
        dialect = Dialect(_plain_delimiter(texts))
    dialect = replace(dialect, quote=quote)
    if not dialect.trim and dialect.delimiter != NO_DELIMITER and any(dialect.delimiter in text for text in texts):
        dialect = replace(dialect, trim=_is_padded(texts[1:], dialect))
    return dialect


def _first_of_two(rows: Sequence[Sequence[str]], width: int) -> int:
    """Return the index of the first row that has `width` cells, as the next row has; that of the last if none has."""
    return next(
        (i for i, (row, below) in enumerate(pairwise(rows)) if len(row) == len(below) == width), max(len(rows) - 1, 0)
    )


def _is_one_column(texts: Sequence[str], dialect: Dialect, score: float) -> bool:
    """Whether each line is a cell: the delimiter that scored best is a part of the cells, such as a decimal comma."""
    if are_comma_numbers(texts):
        return True
    if score >= 1.2 or _is_divided(texts, dialect):
        return False
    return _share_of_values([[text] for text in texts[1:]], 1, NO_DELIMITER) + 0.25 > score


def are_comma_numbers(texts: Sequence[str]) -> bool:
    """Whether below one name, all lines are numbers with a decimal comma, or pairs of whole numbers."""
    is_name = len(texts) > 1 and not any(delimiter in texts[0] for delimiter in DELIMITERS)
    return is_name and all(map(_COMMA_NUMBER, texts[1:]))


def _is_divided(texts: Sequence[str], dialect: Dialect) -> bool:
    """Whether the delimiter divides names or other text: it is then not a part of the values of one column."""
    if dialect.delimiter in (NO_DELIMITER, " "):
        return dialect.delimiter == NO_DELIMITER
    return any(dialect.delimiter in text and not is_value(text, ",") for text in texts)


def _plain_delimiter(texts: Sequence[str]) -> str:
    """Return the delimiter of a file that shows none. If only its rows hold a comma, it is text of one column."""
    if not texts or "," in texts[0] or not any("," in text for text in texts):
        return ","
    return NO_DELIMITER


def _share_of_values(rows: Sequence[Sequence[str]], width: int, delimiter: str) -> float:
    decimal = "." if delimiter == "," else ","
    cells = [cell for row in rows if len(row) == width for cell in row if cell]
    return sum(is_value(cell) or is_value(cell, decimal) for cell in cells) / (len(cells) or 1)


def decimal_of(rows: Sequence[Sequence[str]], dialect: Dialect, head: bytes) -> str:
    """Return the comma if it is the decimal sign for sure: some numbers have one, and none has a point.

    If the first rows have whole numbers alone, all of `head` is looked at.
    """
    if dialect.delimiter == ",":
        return "."
    cells = [cell for row in rows for cell in row]
    if not any(_COMMA_NUMBER(cell) or _POINT_NUMBER(cell) for cell in cells):
        ends = f"[{re.escape(dialect.delimiter)}\r\n]"
        cells = [cell.strip(" \t" + dialect.quote) for cell in re.split(ends, head.decode(errors="replace"))]
    return "," if any(map(_COMMA_NUMBER, cells)) and not any(map(_POINT_NUMBER, cells)) else "."
