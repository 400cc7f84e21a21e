"""Finds out how a CSV file is written: delimiter, quotes, decimal sign, lines before the header, and the header.

`sniff` looks at the first part of a file; `sniff_line` at one line after the other, until it meets the names of a known
schema, so that rows need not wait. What the request names is never guessed. Where the file leaves a doubt, it is read
as plain CSV: commas, points, and the first line as header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastflight.errors import DataError
from fastflight.tables.codec import TextOptions
from fastflight.tables.delimiters import decimal_of, delimited, dialect_of
from fastflight.tables.dialect import DELIMITERS, NO_DELIMITER, Dialect, require_names
from fastflight.tables.header import HEADER_LINES, LINES_BEFORE_HEADER, Line, are_names, unique_names, with_header

# Lines that are looked at to find the dialect.
SNIFFED_LINES = 100
# The first line of a table that is written for Excel, which names the delimiter.
_DECLARED = re.compile(r"sep=([,;\t| ])").fullmatch


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
    dialect = delimited(texts, options)
    rows = [dialect.texts(text) for text in texts]
    dialect = replace(dialect, comment=comment, decimal=options.decimal or decimal_of(rows, dialect, head))
    dialect = with_header(dialect, lines, body, rows, options)
    if head[:1] == b"\0" and dialect.start:
        dialect = replace(dialect, notes=("NUL bytes at the beginning of the file skipped", *dialect.notes))
    return dialect


def sniff_line(line: str, number: int, options: TextOptions, names: Sequence[str], before: str) -> Dialect | None:
    """Find the dialect by a line that holds any of `names`, or as many cells as there are names, none of them a name.

    Returns None if this line is neither. `number` is that of the line in the file, 1 for the first. `before` is the
    line before, or empty: `DataError` if it can be the header of such cells, with other names.
    """
    delimiters = (options.delimiter,) if options.delimiter else (*DELIMITERS, NO_DELIMITER)
    found = [dialect_of(delimiter, line, options) for delimiter in delimiters]
    if options.header in ("auto", number):
        best = max(found, key=lambda each: len({*names}.intersection(each.texts(line))))
        header = best.texts(line)
        if options.header == number or {*names}.intersection(header):
            unique, notes = unique_names(header)
            return replace(best, names=tuple(unique), headers=frozenset([line.strip().encode()]), notes=tuple(notes))
    if options.header in ("auto", "none"):
        for each in found:
            cells = each.texts(line)
            if len(cells) == len(names) and (options.header == "none" or not are_names(cells, each.decimal)):
                above = each.texts(before) if before and options.header == "auto" else []
                if len(above) == len(names):
                    require_names(above, names)
                note = "no header: the columns are named by the schema"
                return replace(each, names=tuple(names), notes=(note,) if options.header == "auto" else ())
    return None


def _lines(head: bytes, options: TextOptions) -> list[Line]:
    """Return the first lines, after those to skip. A line goes on while a quote is open in it."""
    lines: list[Line] = []
    start = number = 0
    while start < len(head) and len(lines) < SNIFFED_LINES:
        end = head.find(b"\n", start) + 1 or len(head)
        if _OPEN(head[start:end]):
            end = next((stop for stop in _next_ends(head, end) if not _OPEN(head[start:stop])), end)
        number += 1
        if number > options.skip_rows:
            text = head[start:end].decode(errors="replace").rstrip("\r\n").lstrip("\0")
            lines.append(Line(start, end, number, text))
        start = end
    return lines


def _next_ends(head: bytes, end: int) -> Iterator[int]:
    for _ in range(HEADER_LINES * 4):
        if end < len(head):
            yield (end := head.find(b"\n", end) + 1 or len(head))


# Text with an open quote at its end.
_OPEN = re.compile(rb'(?:[^"]++|(?<=[^\n,;\t| ])"|"(?:[^"]|"")*+")*+"(?:[^"]|"")*+').fullmatch
