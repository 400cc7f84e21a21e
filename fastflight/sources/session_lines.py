"""Splits what a device sent into lines of text, and says which of them are not whole. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import AFTER_REQUEST

# The cuts at the first row of each recorder: it is not known whether that row begins a line, or it does.
BEGAN = "recording began"
BEGAN_AT_LINE = "recording began with a new line"
# The cuts after which the device's next byte is known to begin a line.
LINE_CUTS = (AFTER_REQUEST, BEGAN_AT_LINE)
# Text without line ends is cut into rows of this length, which are rejected if lines are parsed.
MAX_LINE_BYTES = 64 * 1024


class SessionLine(NamedTuple):
    """A line without its end. `cut` says why the line is not whole; it is empty if it is.

    `seq` and `time_ns` are those of the chunk that holds the first byte; `time_ns` is None if it is not known.
    """

    seq: int
    time_ns: int | None
    data: bytes
    cut: str = ""


UNKNOWN_BEGINNING = "the line may have begun before the session"


class LineSplitter:
    """Splits what the device sent into lines.

    `unfinished` is the line whose end has not come yet: without text, only its `cut` counts. A new splitter that begins
    with it continues there.
    """

    def __init__(self, begins_line: bool, unfinished: SessionLine | None = None) -> None:
        if unfinished is None:
            unfinished = SessionLine(0, 0, b"", "" if begins_line else UNKNOWN_BEGINNING)
        self._seq, self._time_ns, self._partial, self._cut = unfinished

    @property
    def unfinished(self) -> SessionLine:
        """The line whose end has not come yet."""
        return self._line()

    @property
    def partial_seq(self) -> int | None:
        """The number of the chunk where an unfinished line began; None if there is no such line."""
        return self._seq if self._partial else None

    @property
    def begins_line(self) -> bool:
        """Whether the next byte is known to begin a line."""
        return not self._partial and not self._cut

    def feed(self, chunk: Chunk) -> list[SessionLine]:
        """Return the lines that this chunk completes; none for a chunk that was sent to the device."""
        if chunk.direction != "rx":
            return []
        lines: list[SessionLine] = []
        pieces = chunk.data.split(b"\n")
        for piece in pieces[:-1]:
            self._append(chunk, piece, lines)
            if not self._partial:  # a blank line
                self._seq, self._time_ns = chunk.seq, known_time(chunk)
            lines.append(self._line())
            self._partial, self._cut = b"", ""
        self._append(chunk, pieces[-1], lines)
        return lines

    def end(self, reason: str) -> list[SessionLine]:
        """End an unfinished line for `reason`, and return it.

        The text that comes next is cut for the same reason, unless `reason` is one of `LINE_CUTS`.
        """
        self._cut = self._cut or reason
        lines = [self._line()] if self._partial else []
        self._partial, self._cut = b"", "" if reason in LINE_CUTS else reason
        return lines

    def _append(self, chunk: Chunk, piece: bytes, lines: list[SessionLine]) -> None:
        """Add `piece` to the unfinished line; add to `lines` what exceeds `MAX_LINE_BYTES`."""
        if piece and not self._partial:
            self._seq, self._time_ns = chunk.seq, known_time(chunk)
        self._partial += piece
        while len(self._partial) > MAX_LINE_BYTES:
            self._cut = self._cut or f"the line is longer than {MAX_LINE_BYTES} bytes"
            lines.append(self._line()._replace(data=self._partial[:MAX_LINE_BYTES]))
            self._partial = self._partial[MAX_LINE_BYTES:]
            self._seq, self._time_ns = chunk.seq, known_time(chunk)

    def _line(self) -> SessionLine:
        return SessionLine(self._seq, self._time_ns, self._partial, self._cut)


def known_time(chunk: Chunk) -> int | None:
    """Return when a chunk was received; None if it waited in the port before, so that this says nothing."""
    return None if chunk.waited else chunk.time_ns
