"""Prints results on stdout, for people or as JSON, and progress, warnings and errors on stderr.

Much of the text comes from boards, from servers, or from names of files. A terminal obeys the escape sequences in such
text: they can set its title, move the cursor, and make some terminals type. So all text is printed through `printable`:
stderr and tables always, other text if stdout is a terminal. In a pipe or a file other text stays unchanged. JSON
writes such characters as `\\u00XX`, which is the same value (docs/decisions/0028-input.md).

Everything here starts fast. What needs rich, such as colours and previews of rows, is in `drawing`.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from typing import Any, TextIO

# Bytes in a line of a hex view.
HEX_BYTES = 16


def line(text: str) -> None:
    """Print one line of a result on stdout."""
    lines(text + "\n")


def lines(text: str) -> None:
    """Print lines of a result on stdout. `text` includes the line ends."""
    with on_stdout():
        sys.stdout.write(printable_lines(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def bytes_writer() -> Callable[[bytes], None]:
    """Return a function that prints bytes on stdout: unchanged, or as printable text if it is a terminal."""
    if not sys.stdout.isatty():
        return write_unchanged
    # The end of a piece may split a character or a line end, so the decoder keeps state.
    text = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("backslashreplace"), translate=True)
    return lambda data: lines(text.decode(data))


def write_unchanged(data: bytes) -> None:
    """Print bytes on stdout as they are, even on a terminal, which obeys the escape sequences in them."""
    with on_stdout():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """Print an error, a warning or a note on stderr. A device's traceback may have several lines."""
    with best_effort(sys.stderr):
        sys.stderr.write(printable_lines(text) + "\n")
        sys.stderr.flush()


def can_ask() -> bool:
    """Whether a person can answer a question: standard input is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask a question on stderr, and return whether the line from standard input says yes."""
    with best_effort(sys.stderr):
        sys.stderr.write(f"{printable_lines(question)} [y/N] ")
        sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D: the cursor is still in the line of the question
        complain("")
    return answer.strip().lower() in ("y", "yes")


@contextmanager
def on_stdout() -> Iterator[None]:
    """Name "standard output" in an `OSError` of the block; after it, discard further output."""
    try:
        yield
    except BrokenPipeError:
        raise  # its reader has gone: the command ends without a message
    except OSError as error:
        discard_output(sys.stdout)
        raise OSError(error.errno, error.strerror, "standard output") from error


@contextmanager
def best_effort(stream: TextIO) -> Iterator[None]:
    """Ignore errors of writing to `stream` in the block, so that a lost message does not end the command."""
    try:
        yield
    except BrokenPipeError:
        discard_output(stream)
    except (OSError, ValueError):  # the disk is full, or the stream is closed
        pass


def discard_output(stream: TextIO) -> None:
    """Redirect `stream` to the null device: what it has buffered and further output are discarded.

    Otherwise Python would flush the buffer at exit, fail again, and set its own exit code.
    """
    with suppress(OSError, ValueError):  # a stream in tests may have no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


def printable(text: str) -> str:
    """Return `text` as one line, and escape, as Python does, each character that a terminal would obey.

    These are control characters (such as ESC, DEL and C1; a tab stays), format characters (such as bidirectional
    overrides), line separators and halves of surrogate pairs.
    """
    return text if text.isprintable() else "".join(c if _is_printable(c) else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Apply `printable` to each line of `text`."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def _is_printable(character: str) -> bool:
    return character.isprintable() or character == "\t" or unicodedata.category(character) == "Zs"


def as_json(value: Any) -> None:
    """Print a result as one line of JSON. NaN and infinities become null: JSON has neither."""
    from fastflight.tables.writing import finite  # not at the top: it loads Arrow, which `--help` does not need

    text = json.dumps(finite(value), default=_json_default, ensure_ascii=False)
    line(text if text.isprintable() else "".join(c if _is_printable(c) else json.dumps(c)[1:-1] for c in text))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table. `right` names the headings whose columns are aligned to the right."""
    cells = [[printable(text) for text in row] for row in (headings, *rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = []
        for heading, text, width in zip(headings, row, widths, strict=True):
            gap = " " * (width - columns(text))
            padded.append(gap + text if heading in right else text + gap)
        line("  ".join(padded).rstrip())


def columns(text: str) -> int:
    """Return how many columns of a terminal `text` takes: Chinese characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in ("W", "F") for each in text)
    return len(text) + wide - sum(unicodedata.category(each) in ("Mn", "Me") for each in text)


def hex_line(data: bytes) -> str:
    """Format up to `HEX_BYTES` bytes: each in hexadecimal, then as an ASCII character, or as a dot."""
    characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{data.hex(' '):{3 * HEX_BYTES}} {characters}"


def size(number: int | None) -> str:
    """Format a number of bytes: exact below 10,000, in decimal units above; None as `-`."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number} B"
    for unit, bytes_each in (("kB", 10**3), ("MB", 10**6)):
        if number < bytes_each * 1000:
            return f"{number / bytes_each:.1f} {unit}"
    return f"{number / 10**9:.1f} GB"


def amount(done: int, total: int | None) -> str:
    """Format how many bytes of how many are done; `total` is None if unknown."""
    return size(done) if total is None else f"{size(done)} of {size(total)}"


def _json_default(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
