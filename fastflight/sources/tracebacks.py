"""Finds the tracebacks of MicroPython and CPython in what a device prints. No I/O.

Pass traffic to `feed`, and call `settle` when nothing new has come: a traceback has no mark of its end. A traceback is
a header line, indented lines with at least one frame, and the line of the error. Of a message with several lines only
the first is known. Tracebacks that a line joins ("During handling of the above exception, ...") count as one, with the
last error.

A traceback that other output, a gap or the end of the line cuts off has the error `CUT_OFF`, and the place of the last
frame that was seen. Left out are `KeyboardInterrupt`, since somebody has stopped the program; code that was typed or
sent to the prompt (all its frames are in `<stdin>`); and what a request cuts off, since it stops the program.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fastflight.gap import Gap
from fastflight.sources.session_lines import LineSplitter, SessionLine
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import REQUEST_CUTS

# Its first letter occurs nowhere else in it: `_beginning` relies on that.
HEADER = b"Traceback (most recent call last):"
CUT_OFF = "the traceback is cut off"
PROMPT_FILE = "<stdin>"
# Lines that are kept of a traceback: the first ones, and as many of the last ones. A recursion prints thousands.
MAX_LINES = 20
MAX_LINE_CHARACTERS = 300
# With more lines it is no traceback: its error would have come.
MAX_LEFT_OUT = 5000
# A traceback without a last line ends when the board has said nothing for so long.
QUIET_SECONDS = 3.0

_HEADER = HEADER.decode()
_FRAME = re.compile(r'\s+File "(?P<file>.*?)"(?:, line (?P<line>\d+))?(?:, in (?P<function>.*))?')
# After a class of a module, or one that begins as classes do. `MPY: soft reboot` is no error.
_ERROR = re.compile(r"(?!MPY:)(?:(?:[A-Za-z_]\w*\.)+\w+|[A-Z_]\w*)(?::.*)?")
_JOINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# A word that begins with a digit or a sign, or the address of an object. The number of an `OSError` says which it is.
_NUMBER = re.compile(r"(?<!\[Errno )(?<![\w.])-?\d\w*(?:\.\w+)*|(?<=\bat )[0-9a-fA-F]{4,}\b")
_ONLY_NUMBER = re.compile(r"-?\d\w*")


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback. `error` is its last line, `place` the file, line and function of its last frame.

    `seq` and `time_ns` are those of the chunk with its first byte.
    """

    error: str
    place: str
    text: str
    seq: int
    time_ns: int


def without_numbers(error: str) -> str:
    """Return an error with `#` for each number of its message. Errors that differ in these alone are of one kind.

    A message that is only a number, and the number of an `OSError`, stay: they say what has failed.
    """
    name, colon, message = error.partition(": ")
    return error if _ONLY_NUMBER.fullmatch(message) else f"{name}{colon}{_NUMBER.sub('#', message)}"


@dataclass(slots=True)
class _Unfinished:
    """A traceback whose end is not known yet. `seq` and `time_ns` are those of its header."""

    seq: int
    time_ns: int
    first: list[str] = field(default_factory=lambda: [_HEADER])
    last: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    left_out: int = 0
    place: str = ""
    # The line of the error, once it has come, and whether a line has said that another traceback follows.
    error: str = ""
    is_joined: bool = False
    # Whether a frame is in a file, and not at the prompt.
    is_program: bool = False

    def takes(self, text: str) -> bool:
        """Whether a line belongs to the traceback. It is added then."""
        if text.endswith(_HEADER) and not (text == _HEADER and self.is_joined):
            return False  # another traceback begins
        if not self.error:
            if frame := _FRAME.fullmatch(text):
                self._enter(frame)
            elif self.place and _ERROR.fullmatch(text):
                self.error = text
            elif text[:1].strip() or self.left_out > MAX_LEFT_OUT:
                return False
        elif text in _JOINS:
            self.is_joined = True
        elif text == _HEADER:
            self.error, self.is_joined = "", False
        elif text:
            return False
        self._add(text[:MAX_LINE_CHARACTERS])
        return True

    def _enter(self, frame: re.Match[str]) -> None:
        self.is_program |= frame["file"] != PROMPT_FILE
        where = frame["file"] + (f":{frame['line']}" if frame["line"] else "")
        self.place = where if frame["function"] in (None, "<module>") else f"{where} in {frame['function']}"

    def _add(self, text: str) -> None:
        if len(self.first) < MAX_LINES:
            self.first.append(text)
            return
        self.left_out += len(self.last) == MAX_LINES
        self.last.append(text)

    def result(self) -> Traceback | None:
        """Return the traceback; None if it is no crash of a program."""
        if not self.is_program or self.error.partition(":")[0] == "KeyboardInterrupt":
            return None
        between = [f"  ... {self.left_out} lines"] if self.left_out else []
        text = "\n".join([*self.first, *between, *self.last]).rstrip()
        error = (self.error or CUT_OFF)[:MAX_LINE_CHARACTERS]
        return Traceback(error, self.place[:MAX_LINE_CHARACTERS], text, self.seq, self.time_ns)


class TracebackReader:
    """Reads what one device prints."""

    def __init__(self) -> None:
        # While no header was seen: the last bytes, if one may begin with them, and the chunk of the first of these.
        self._tail = b""
        self._begin: Chunk | None = None
        # From a header on, until nothing goes on: what splits lines.
        self._splitter: LineSplitter | None = None
        self._unfinished: _Unfinished | None = None
        self._heard_ns = 0

    @property
    def is_inside(self) -> bool:
        """Whether a traceback has begun and not ended yet."""
        return self._unfinished is not None

    def feed(self, items: Sequence[Chunk | Gap]) -> Iterator[Traceback]:
        """Take the next traffic, and yield the tracebacks that end in it."""
        if self._splitter is None and not self._may_begin(items):
            return
        for item in items:
            if isinstance(item, Gap) or item.cut:
                if not isinstance(item, Gap) and item.cut in REQUEST_CUTS:
                    self._unfinished = None
                yield from self._end()
                self._tail, self._splitter = b"", None
            if isinstance(item, Chunk) and item.direction == "rx":
                self._heard_ns = item.time_ns
                yield from self._receive(item)

    def settle(self, now_ns: int) -> Iterator[Traceback]:
        """Yield a traceback that does not go on. Call it when nothing has come for a second or so."""
        found = self._unfinished
        if found is None or self._splitter is None:
            return
        if found.error:  # no other traceback is joined to it
            yield from self._end()
        elif now_ns - self._heard_ns >= QUIET_SECONDS * 1e9:
            for line in self._splitter.end(CUT_OFF):  # an error without a line end
                yield from self._take(line)
            yield from self._end()

    def _may_begin(self, items: Sequence[Chunk | Gap]) -> bool:
        """Whether a header is in `items`. If not, which is so nearly always, they are done with."""
        chunks = [item for item in items if isinstance(item, Chunk) and item.direction == "rx"]
        data = self._tail + b"".join([chunk.data for chunk in chunks])
        if HEADER in data:
            return True
        self._keep(_beginning(data), chunks)
        return False

    def _receive(self, chunk: Chunk) -> Iterator[Traceback]:
        if self._splitter is None:
            data = self._tail + chunk.data
            at = data.find(HEADER)
            if at < 0:
                self._keep(_beginning(data), [chunk])
                return
            begin = self._begin if self._begin is not None and at < len(self._tail) else chunk
            self._splitter = LineSplitter(True)
            chunk = begin._replace(data=data[at:])
        for line in self._splitter.feed(chunk):
            yield from self._take(line)
        rest = self._splitter.unfinished.data
        if self._unfinished is not None and self._unfinished.error and rest.strip():
            text = rest.decode(errors="replace")
            if not any(each.startswith(text) for each in _JOINS):  # a prompt, for example
                yield from self._end()
        if self._unfinished is None and HEADER not in rest:
            self._splitter = None
            self._keep(_beginning(rest), [chunk])

    def _keep(self, tail: bytes, chunks: Sequence[Chunk]) -> None:
        """Keep the last bytes, which may be the beginning of a header. `chunks` are the newest ones."""
        self._tail = tail
        missing = len(tail)
        for chunk in reversed(chunks if tail else ()):
            missing -= len(chunk.data)
            if missing <= 0:
                self._begin = chunk
                return

    def _take(self, line: SessionLine) -> Iterator[Traceback]:
        """Take the next line."""
        text = line.data.decode(errors="replace").rstrip()
        if self._unfinished is not None and self._unfinished.takes(text):
            return
        yield from self._end()
        if text.endswith(_HEADER):
            self._unfinished = _Unfinished(line.seq, line.time_ns or self._heard_ns)

    def _end(self) -> Iterator[Traceback]:
        """End the traceback, if there is one."""
        found, self._unfinished = self._unfinished, None
        if found is not None and (result := found.result()) is not None:
            yield result


def _beginning(data: bytes) -> bytes:
    """Return the last bytes of `data` with which a header may begin."""
    at = data.rfind(HEADER[:1], max(0, len(data) - len(HEADER) + 1))
    return data[at:] if at >= 0 and HEADER.startswith(data[at:]) else b""
