"""Finds out how a CSV file is written: delimiter, quotes, decimal sign, lines before the header, and the header.

`sniff` looks at the first part of a file; `sniff_line` at one line after the other, until it meets the names of a known
schema, so that rows need not wait. What the request names is never guessed. Where the file leaves a doubt, it is read
as plain CSV: commas, points, and the first line as header.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from fastflight.errors import DataError, nearest
from fastflight.tables.codec import TextOptions
from fastflight.tables.kinds import Kind, is_value, kind_of
from fastflight.tables.schemas import MAX_COLUMNS
from fastflight.tables.summary import shorten

DELIMITERS = ("\t", ";", "|", ",", " ")
# The text of a cell without its quotes, and whether it was quoted.
Cell: TypeAlias = tuple[str, bool]
# The delimiter of a table of one column whose cells may hold any other. The unit separator is in no text.
NO_DELIMITER = "\x1f"
# Lines that are looked at to find the dialect.
SNIFFED_LINES = 100
# Lines before the header that a file may have.
LINES_BEFORE_HEADER = 64
# Lines that one header may have, units and such below the names included.
HEADER_LINES = 3
# The first cell of the data tables of Campbell loggers. The lines of names, units and processing follow.
_TOA5 = "TOA5"
_COMMA_NUMBER = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?").fullmatch
_POINT_NUMBER = re.compile(r"[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?").fullmatch
# Dates and times of day as they are written anywhere.
_CLOCK = re.compile(r"[0-9]{1,4}([-./:])[0-9]{1,2}(?:\1[0-9]{1,4})?(?:[ T][0-9:.,]+)?(?: ?[AaPp][Mm])?").fullmatch
# The first line of a table that is written for Excel, which names the delimiter.
_DECLARED = re.compile(r"sep=([,;\t| ])").fullmatch
_NUMBER = re.compile(r"-?[0-9]+")
_SINGLE_QUOTED = re.compile(r"(?:^|[,;\t|])[ \t]*'[^']*'[ \t]*(?=[,;\t|]|$)")


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


def sniff(head: bytes, options: TextOptions) -> Dialect:
    """Find the dialect of a file that begins with `head`, which is UTF-8 apart from single bytes.

    `DataError` if the header cannot be read: it is not closed or has too many columns.
    """
    lines = _lines(head, options)
    if isinstance(options.header, int):
        lines = [line for line in lines if line.number >= options.header]
    if lines and _OPEN(lines[0].text.encode()):
        raise DataError("the first row is too long or not closed", where="byte 0", hint="Start with a header line")
    if lines and options.delimiter is None and (declared := _DECLARED(lines[0].text.removesuffix("\r"))):
        options, lines = replace(options, delimiter=declared[1]), lines[1:]
    comment = options.comment or (
        "#" if any(line.text.startswith("#") for line in lines[:LINES_BEFORE_HEADER]) else None
    )
    body = [line for line in lines if line.text.strip() and not (comment and line.text.startswith(comment))]
    texts = [line.text for line in body]
    dialect = _delimited(texts, options)
    rows = [dialect.texts(text) for text in texts]
    dialect = replace(dialect, comment=comment, decimal=options.decimal or _decimal(rows, dialect, head))
    dialect = _with_header(dialect, lines, body, rows, options)
    if head[:1] == b"\0" and dialect.start:
        dialect = replace(dialect, notes=("NUL bytes at the beginning of the file skipped", *dialect.notes))
    return dialect


def sniff_line(line: str, number: int, options: TextOptions, names: Sequence[str], before: str) -> Dialect | None:
    """Find the dialect by a line that holds any of `names`, or as many cells as there are names, none of them a name.

    Returns None if this line is neither. `number` is that of the line in the file, 1 for the first. `before` is the
    line before, or empty: `DataError` if it can be the header of such cells, with other names.
    """
    delimiters = (options.delimiter,) if options.delimiter else (*DELIMITERS, NO_DELIMITER)
    found = [_dialect(delimiter, line, options) for delimiter in delimiters]
    if options.header in ("auto", number):
        best = max(found, key=lambda each: len({*names}.intersection(each.texts(line))))
        header = best.texts(line)
        if options.header == number or {*names}.intersection(header):
            unique, notes = unique_names(header)
            return replace(best, names=tuple(unique), headers=frozenset([line.strip().encode()]), notes=tuple(notes))
    if options.header in ("auto", "none"):
        for each in found:
            cells = each.texts(line)
            if len(cells) == len(names) and (options.header == "none" or not _are_names(cells, each.decimal)):
                above = each.texts(before) if before and options.header == "auto" else []
                if len(above) == len(names):
                    require_names(above, names)
                note = "no header: the columns are named by the schema"
                return replace(each, names=tuple(names), notes=(note,) if options.header == "auto" else ())
    return None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file: where it begins and ends, its number from 1 on, and its text."""

    start: int
    end: int
    number: int
    text: str


def _lines(head: bytes, options: TextOptions) -> list[_Line]:
    """Return the first lines, after those to skip. A line goes on while a quote is open in it."""
    lines: list[_Line] = []
    start = number = 0
    while start < len(head) and len(lines) < SNIFFED_LINES:
        end = head.find(b"\n", start) + 1 or len(head)
        if _OPEN(head[start:end]):
            end = next((stop for stop in _next_ends(head, end) if not _OPEN(head[start:stop])), end)
        number += 1
        if number > options.skip_rows:
            text = head[start:end].decode(errors="replace").rstrip("\r\n").lstrip("\0")
            lines.append(_Line(start, end, number, text))
        start = end
    return lines


def _next_ends(head: bytes, end: int) -> Iterator[int]:
    for _ in range(HEADER_LINES * 4):
        if end < len(head):
            yield (end := head.find(b"\n", end) + 1 or len(head))


# Text with an open quote at its end.
_OPEN = re.compile(rb'(?:[^"]++|(?<=[^\n,;\t| ])"|"(?:[^"]|"")*+")*+"(?:[^"]|"")*+').fullmatch


def _dialect(delimiter: str, line: str, options: TextOptions) -> Dialect:
    """Return the dialect of a delimiter. It trims blanks if they follow, or precede, each delimiter of a line."""
    trim = delimiter == " " or _is_spaced(line, delimiter)
    return Dialect(delimiter, trim=trim, decimal=options.decimal or ("." if delimiter == "," else ","))


def _is_spaced(line: str, delimiter: str) -> bool:
    """Whether blanks follow, or precede, each delimiter of a line."""
    return 0 < line.count(delimiter) == max(line.count(delimiter + " "), line.count(" " + delimiter))


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


def _delimited(texts: Sequence[str], options: TextOptions) -> Dialect:
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
        dialect = replace(_dialect(delimiter, first, options), quote=quote)
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
    dialect = best.dialect if best else _dialect(options.delimiter or _plain_delimiter(texts), first, options)
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
    if _are_comma_numbers(texts):
        return True
    if score >= 1.2 or _is_divided(texts, dialect):
        return False
    return _share_of_values([[text] for text in texts[1:]], 1, NO_DELIMITER) + 0.25 > score


def _are_comma_numbers(texts: Sequence[str]) -> bool:
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


def _decimal(rows: Sequence[Sequence[str]], dialect: Dialect, head: bytes) -> str:
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


def _with_header(
    dialect: Dialect, lines: Sequence[_Line], body: Sequence[_Line], rows: Sequence[Sequence[str]], options: TextOptions
) -> Dialect:
    notes: list[str] = []
    widths = Counter(map(len, rows))  # the first row breaks a tie
    width = max(widths.items(), key=lambda item: (item[1], item[0] == len(rows[0]), item[0]), default=(0, 0))[0]
    first, count = _header_of(dialect, body, rows, width, options)
    if options.header == "auto" and count:
        titles = _titles([line.text for line in body], rows, width, dialect)
        first, count = (titles, 1) if titles > first else (first, count)
    header = rows[first : first + count]
    data = [row for row in rows[first + count :] if len(row) == width]
    names = [" ".join(filter(None, column)) for column in zip(*header, strict=False)] if header else []
    if "\ufffd" in "".join(names):
        raise DataError("the header is not UTF-8", where="header", hint="Give its encoding, or try format raw")
    if count > 1:
        notes.append(f"the names were joined from {count} lines")
    comments = [
        line
        for line in lines
        if dialect.comment and line.text.startswith(dialect.comment) and (not body or line.start < body[0].start)
    ]
    if not header and options.header == "auto" and comments and rows:
        # As numpy writes it: the names stand in the last comment.
        named = dialect.texts(comments[-1].text.lstrip(f"{dialect.comment} "))
        if len(named) == width > 1 and _are_names(named, dialect.decimal):
            names, comments = named, comments[:-1]
    if dialect.delimiter == NO_DELIMITER and _are_comma_numbers([line.text for line in body]):
        notes.append("one column: the commas were read as decimal signs")
    if rows and not names:
        names = [f"column_{index + 1}" for index in range(width)]
        if options.header == "auto":
            notes.append("no header: the first line holds values")
    before = first + len(comments)
    if before:
        notes.append(f"{before} {'line' if before == 1 else 'lines'} before the header skipped")
    if len(names) > MAX_COLUMNS:
        raise DataError(f"the header has {len(names)} columns", where="header", hint=f"At most {MAX_COLUMNS}")
    unique, renamed = unique_names(names, rows=data)
    if count:
        start = body[first + count - 1].end
    else:
        start = body[first].start if first < len(body) else lines[-1].end if lines else 0
    # A file that was appended to another one may begin with a byte order mark.
    texts = [line.text.strip() for line in body[first : first + count]]
    headers = frozenset(mark + text.encode() for text in texts for mark in (b"", codecs.BOM_UTF8))
    if len(unique) == 1 and not any(is_value(cell, dialect.decimal) for row in data for cell in row):
        headers = frozenset()  # in one column of text, a value may be the same as the name
    narrow = width if 0 < width < len(unique) else None
    if narrow:
        notes.append(f"rows have {width} cells, the header has {len(unique)}: the last columns are null")
    return replace(dialect, names=tuple(unique), start=start, headers=headers, narrow=narrow, notes=(*notes, *renamed))


def _header_of(
    dialect: Dialect, body: Sequence[_Line], rows: Sequence[Sequence[str]], width: int, options: TextOptions
) -> tuple[int, int]:
    """Return the index of the header's first line, and the number of its lines, which is 0 without a header."""
    if options.header == "none" or not rows:
        return 0, 0
    if isinstance(options.header, int):
        for index, line in enumerate(body):
            if line.number == options.header:
                return index, 1
        raise DataError(f"the file has no line {options.header}", where="header", hint="Give the line of the names")
    if rows[0][0] == _TOA5:
        return 1, min(HEADER_LINES, len(rows) - 1)
    first = next((i for i, row in enumerate(rows[:LINES_BEFORE_HEADER]) if len(row) == width), 0)
    while _ends_settings(first, body, rows, dialect.decimal):
        first += 1
    start = first
    while first + 1 < len(rows) and not any(rows[first]):
        first += 1
    if first > start and not (_are_names(rows[first], dialect.decimal) and len(rows[first]) == width):
        return start, 0  # rows of empty cells, and no names below them
    if not _are_names(rows[first], dialect.decimal):
        if not first or not (len(rows[first - 1]) > 1 and _are_names(rows[first - 1], dialect.decimal)):
            return first, 0
        first -= 1
    elif _is_like_rows(rows[first], [row for row in rows[first + 1 :] if len(row) == width]):
        return first, 0
    elif first and not any(is_value(cell, dialect.decimal) for row in rows[first + 1 :] for cell in row):
        first = 0  # nothing but text: the plain reading
    return first, _header_lines(dialect, rows[first:], width)


def _ends_settings(at: int, body: Sequence[_Line], rows: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether a row with a value, such as `Interval,10,s`, is the last before an empty line and the names."""
    if at + 2 >= len(rows) or body[at + 1].number == body[at].number + 1:
        return False
    row, names, below = ([is_value(cell, decimal) for cell in each] for each in rows[at : at + 3])
    return len(row) == len(names) and any(row) and not any(names) and any(below)


def _is_like_rows(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row differs from most rows below it in numbers alone, as `temp:20.5` does from `temp:20.6`.

    Or whether one of its cells is a date, a time of day or a truth value, as all below it.
    """
    for place, form in enumerate(map(_form, row)):
        if form and {form} == {_form(each[place]) for each in below if each[place]}:
            return True
    first, *others = ([_NUMBER.sub("0", cell) for cell in each] for each in (row, *below))
    same = others.count(first)
    return any(char.isdigit() for cell in row for char in cell) and same > 1 and 2 * same > len(below)


def _form(cell: str) -> str:
    """Return what a cell looks like, if it looks like a date, a time of day or a truth value."""
    if kind_of(cell) == Kind.BOOL:
        return "bool"
    return "clock" if _CLOCK(cell) else ""


def _titles(texts: Sequence[str], rows: Sequence[Sequence[str]], width: int, dialect: Dialect) -> int:
    """Return how many lines of prose stand above the names: blanks follow their commas, but not those of the names.

    A single such line may itself hold the names, above a row of text: then the row below must hold values alone.
    """
    if dialect.delimiter != ",":
        return 0
    for index, (row, below) in enumerate(pairwise(rows[: LINES_BEFORE_HEADER + 1])):
        if not (_is_spaced(texts[index], ",") or len(row) == 1):
            if not index or len(row) != width or len(below) != width or not _are_names(row, dialect.decimal):
                return 0
            values = [is_value(cell, dialect.decimal) for cell in below]
            return index if all(values) or (index > 1 and any(values)) else 0
    return 0


def _header_lines(dialect: Dialect, rows: Sequence[Sequence[str]], width: int) -> int:
    """Return how many lines the header has: below the names may stand units, text above columns of values."""
    for count in range(HEADER_LINES, 1, -1):
        below = [row for row in rows[count:] if len(row) == width]
        if len(below) < 2:
            continue
        valued = [
            place
            for place in range(width)
            if all(is_value(row[place], dialect.decimal) or not row[place] for row in below)
            and any(row[place] for row in below)
        ]
        if valued and all(_is_units(row, valued, width, dialect.decimal) for row in rows[1:count]):
            return count
    return 1


def _is_units(row: Sequence[str], valued: Sequence[int], width: int, decimal: str) -> bool:
    if len(row) != width or any('"' in cell or (cell and kind_of(cell, decimal) != Kind.TEXT) for cell in row):
        return False
    if any(cell[:1].isdigit() for cell in row):  # as a hexadecimal number or the id of a board begins
        return False
    return sum(bool(row[place]) for place in valued) * 2 >= len(valued)


def _are_names(row: Sequence[str], decimal: str) -> bool:
    """Whether a row can be a header: not all of its cells hold values, and none holds a moment or a fraction."""
    cells = [cell for cell in row if cell]
    if any(_is_measured(cell, decimal) for cell in cells):
        return False
    return bool(cells) and not all(is_value(cell, decimal) or is_value(cell) for cell in cells)


def _is_measured(cell: str, decimal: str) -> bool:
    kind = kind_of(cell, decimal) | kind_of(cell)
    return bool(kind & (Kind.MOMENT | Kind.ZONED)) or (Kind.FLOAT in kind and cell[:1] in "+-.0123456789")


def unique_names(names: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> tuple[list[str], list[str]]:
    """Return a name of its own for each column, and notes on the names that were changed.

    A column without a name is `column_N`. `rows` may be wider than the header: then the columns after it are `_N`, or
    have no name if they are always empty.
    """
    taken = set(filter(None, names))
    unique: list[str] = []
    repeated: list[str] = []
    for place, name in enumerate(names):
        new = name or f"column_{place + 1}"
        number = 2
        while new in unique or (new != name and new in taken):
            new = f"{name or f'column_{place + 1}'}_{number}"
            number += 1
        if name and new != name:
            repeated.append(f"{shorten(name)} is {shorten(new)}")
        unique.append(new)
    notes = [f"column names repeated: {', '.join(repeated[:8])}"] if repeated else []
    if unnamed := [new for new, name in zip(unique, names, strict=True) if not name]:
        notes.append(f"columns without a name: {', '.join(unnamed[:8])}")
    wider = max(map(len, rows), default=0)
    extra = [f"_{place + 1}" if any(row[place] for row in rows) else "" for place in range(len(names), wider)]
    if any(extra):
        notes.append(f"rows have more cells than the header: {', '.join(filter(None, extra[:8]))} added")
    return [*unique, *extra], notes


def require_names(header: Sequence[str], names: Sequence[str]) -> None:
    """Raise `DataError` if a column of the schema is not in the header of the file."""
    for name in names:
        if name not in header:
            raise DataError(f"the file has no column {name!r}", where="header", hint=nearest(name, header))
