"""Finds the header of a CSV file: the lines that name the columns, if any, and a name for each column."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fastflight.errors import DataError
from fastflight.tables.codec import TextOptions
from fastflight.tables.delimiters import are_comma_numbers
from fastflight.tables.dialect import NO_DELIMITER, Dialect, is_spaced
from fastflight.tables.kinds import Kind, is_value, kind_of
from fastflight.tables.schemas import MAX_COLUMNS
from fastflight.tables.summary import shorten

# Lines before the header that a file may have.
LINES_BEFORE_HEADER = 64
# Lines that one header may have, units and such below the names included.
HEADER_LINES = 3
# The first cell of the data tables of Campbell loggers. The lines of names, units and processing follow.
_TOA5 = "TOA5"
# Dates and times of day as they are written anywhere.
_CLOCK = re.compile(r"[0-9]{1,4}([-./:])[0-9]{1,2}(?:\1[0-9]{1,4})?(?:[ T][0-9:.,]+)?(?: ?[AaPp][Mm])?").fullmatch
_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the file: where it begins and ends, its number from 1 on, and its text."""

    start: int
    end: int
    number: int
    text: str


def with_header(
    dialect: Dialect, lines: Sequence[Line], body: Sequence[Line], rows: Sequence[Sequence[str]], options: TextOptions
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
        if len(named) == width > 1 and are_names(named, dialect.decimal):
            names, comments = named, comments[:-1]
    if dialect.delimiter == NO_DELIMITER and are_comma_numbers([line.text for line in body]):
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
    dialect: Dialect, body: Sequence[Line], rows: Sequence[Sequence[str]], width: int, options: TextOptions
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
    if first > start and not (are_names(rows[first], dialect.decimal) and len(rows[first]) == width):
        return start, 0  # rows of empty cells, and no names below them
    if not are_names(rows[first], dialect.decimal):
        if not first or not (len(rows[first - 1]) > 1 and are_names(rows[first - 1], dialect.decimal)):
            return first, 0
        first -= 1
    elif _is_like_rows(rows[first], [row for row in rows[first + 1 :] if len(row) == width]):
        return first, 0
    elif first and not any(is_value(cell, dialect.decimal) for row in rows[first + 1 :] for cell in row):
        first = 0  # nothing but text: the plain reading
    return first, _header_lines(dialect, rows[first:], width)


def _ends_settings(at: int, body: Sequence[Line], rows: Sequence[Sequence[str]], decimal: str) -> bool:
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
        if not (is_spaced(texts[index], ",") or len(row) == 1):
            if not index or len(row) != width or len(below) != width or not are_names(row, dialect.decimal):
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


def are_names(row: Sequence[str], decimal: str) -> bool:
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
