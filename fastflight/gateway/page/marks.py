"""Finds what stands out in the lines of a device, for the timeline of the page: tracebacks, resets and errors.

`MarkFinder.feed` takes lines as they come, and `marks` are the newest marks, each with the lines around it. The lines
after a mark belong to it, so a traceback is one mark. A board that prints errors without end makes one mark a second.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

# Marks of a device that are sent to the page, the newest ones. All are sent again when one comes.
MAX_MARKS = 10
# Lines before a mark and from it on that are sent with it, and their length. Tracebacks of boards are shorter.
BEFORE_LINES = 4
TEXT_LINES = 16
MAX_LINE_CHARACTERS = 160
# A mark is complete after this time, if not all of its lines have come.
COMPLETE_NS = 1_000_000_000

# In the order in which they are looked for. What boards print first: MicroPython, and the loaders of Espressif's chips.
KINDS = {
    "traceback": re.compile(rb"^Traceback \(most recent call last\)|^Guru Meditation Error"),
    "reset": re.compile(
        rb"^(MPY: soft reboot|MicroPython v\d|CircuitPython \d|rst:0x|ets [A-Z][a-z]{2} |ESP-ROM:|Brownout)"
    ),
    # A JSON object may have a key such as `error`: there the level counts.
    "error": re.compile(rb'(?i)^[^{].*error|^error|:\s*"(error|critical|fatal)"'),
}


class MarkFinder:
    """Finds marks in the lines of one device."""

    def __init__(self) -> None:
        # Each with `time` (ms since 1970), `kind` and `text`.
        self.marks: deque[dict[str, Any]] = deque(maxlen=MAX_MARKS)
        self._before: deque[str] = deque(maxlen=BEFORE_LINES)
        # The mark whose lines still come, and its time.
        self._open: tuple[int, str, list[str]] | None = None

    def feed(self, lines: Iterable[tuple[int, bytes]], now_ns: int) -> None:
        """Take complete lines with their times (ns). Call it without lines as well: it completes marks."""
        for time_ns, line in lines:
            text = line[: 4 * MAX_LINE_CHARACTERS].decode(errors="replace").rstrip()[:MAX_LINE_CHARACTERS]
            kind = kind_of(line)
            if self._open is not None:
                began, old, texts = self._open
                if len(texts) < TEXT_LINES + BEFORE_LINES and time_ns < began + COMPLETE_NS:
                    if kind != "reset" or old == "reset":
                        texts.append(text)
                        if kind == "traceback":
                            self._open = began, kind, texts
                        continue
                self._close()
            if kind is not None:
                self._open = time_ns, kind, [*self._before, text]
            self._before.append(text)
        if self._open is not None and now_ns >= self._open[0] + COMPLETE_NS:
            self._close()

    def _close(self) -> None:
        assert self._open is not None
        (time_ns, kind, texts), self._open = self._open, None
        self.marks.append({"time": time_ns // 1_000_000, "kind": kind, "text": "\n".join(texts)})
        self._before.extend(texts)


def kind_of(line: bytes) -> str | None:
    """Return which kind of mark a line begins, or None."""
    return next((kind for kind, pattern in KINDS.items() if pattern.search(line)), None)
