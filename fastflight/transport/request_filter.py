"""Separates the traffic of requests from what a board says by itself.

A request takes a board from its prompt to the raw REPL, talks with it there, and leaves it with Ctrl-B. What crosses
the line in between, both ways, belongs to the request. What the board's program says before the raw REPL answers, and
after the prompt has come back, does not, though one read may bring both: such a read is divided.

::

    OUTSIDE -- begin(repl) --> ENTERING -- "raw REPL; CTRL-B to exit\\r\\n>" --> TALKING -- repl.leave() --> LEAVING
    LEAVING -- ">>> ", or LEAVE_SECONDS --> OUTSIDE
    ENTERING, TALKING -- end() --> OUTSIDE

While ENTERING or LEAVING, bytes that may be the beginning of the REPL's answer wait for the bytes after them. A board
whose program runs on is never TALKING, so all of its output remains its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from fastflight.protocol.raw_repl import PROMPT, RawRepl
from fastflight.transport.chunk_buffer import Direction
from fastflight.transport.tap import Tap

# A board answers Ctrl-B within milliseconds. After this it was reset or does not answer, and what comes is its own.
LEAVE_SECONDS = 1.0
# What the REPL answers to Ctrl-B: an empty line, a banner of two lines on most ports, and the prompt.
_LEFT = re.compile(rb"(?:\r?\n)?(?:MicroPython [^\n]{1,200}\n[^\n]{0,200}\n)?>>> ")
# How that answer may begin, or that to the Ctrl-A of the next request.
_BEGINNINGS = (b"\r\nMicroPython ", b"\r\n>>> ", PROMPT)
_BANNER = re.compile(rb"(?:\r?\n)?MicroPython [^\n]{0,200}(?:\n[^\n]{0,200}(?:\n>{0,3})?)?\Z")
# Prompts and empty lines that the keys of a request made the friendly REPL print.
_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n)?\Z")
_MAYBE_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n?>{0,3})\Z")
# A program that prints nothing but line ends is not the answer to a request.
_MOST_PROMPT_BYTES = 64


class RequestFilter:
    """Feeds `tap` with what crosses a line, marked where it belongs to a request. Used by the line's holder only."""

    def __init__(self, tap: Tap, clock: Callable[[], float] = time.monotonic) -> None:
        self._tap = tap
        self._clock = clock
        self._repl: RawRepl | None = None
        self._leaves = 0
        self._talking = False
        # Until when the answer to Ctrl-B may come; None when it came.
        self._leaving: float | None = None
        self._held = b""

    def begin(self, repl: RawRepl) -> None:
        """From now on a request has the line, by way of `repl`."""
        self._repl = repl
        self._leaves = repl.leaves

    def end(self) -> None:
        """The request is done."""
        self._look()
        if self._talking:
            self._talking = False
            self._tap.end_of_request(begins_line=False)
        if self._leaving is None:
            self._release()
        self._repl = None

    def feed(self, direction: Direction, data: bytes) -> None:
        """Something crossed the line."""
        if self._repl is None and self._leaving is None:
            self._tap.feed(direction, data)
            return
        self._look()
        if self._talking:
            self._tap.feed(direction, data, request=True)
        elif direction == "tx":
            if self._repl is None:
                # Somebody else has the line: what they are answered is theirs.
                self._leaving = None
                self._release()
            self._tap.feed("tx", data, request=self._repl is not None)
        else:
            self._sort(data)

    def _look(self) -> None:
        """See whether the request has left the raw REPL since the last look."""
        if self._repl is not None and self._repl.leaves != self._leaves:
            self._leaves = self._repl.leaves
            if self._talking:
                self._talking = False
                self._tap.end_of_request(begins_line=False)
                self._leaving = self._clock() + LEAVE_SECONDS

    def _sort(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        if self._leaving is not None:
            data = self._sort_leaving(data)
        if data and self._leaving is None and self._repl is not None:
            data = self._sort_entering(data)
        if data:
            self._tap.feed("rx", data)

    def _sort_leaving(self, data: bytes) -> bytes:
        """What remains to be sorted after the answer to Ctrl-B. While that is not whole, nothing."""
        if found := _LEFT.search(data):
            self._tap.feed("rx", data[: found.start()])
            self._tap.feed("rx", found[0], request=True)
            self._tap.end_of_request(begins_line=True)
            self._leaving = None
            return data[found.end() :]
        entered = self._repl is not None and PROMPT in data
        if entered or (self._leaving is not None and self._clock() >= self._leaving):
            self._leaving = None
            return data
        found = _BANNER.search(data)
        self._hold(data, found.start() if found else len(data) - max(_overlap(data, each) for each in _BEGINNINGS))
        return b""

    def _sort_entering(self, data: bytes) -> bytes:
        """As `_sort_leaving`, for the answer to Ctrl-A."""
        at = data.find(PROMPT)
        if at < 0:
            at = len(data) - _overlap(data, PROMPT)
            start = _answer_start(_MAYBE_PROMPTS, data, at)
            self._hold(data, start if len(data) - start <= _MOST_PROMPT_BYTES else len(data))
            return b""
        start = _answer_start(_PROMPTS, data, at)
        self._tap.feed("rx", data[:start])
        self._tap.feed("rx", data[start:], request=True)
        self._talking = True
        return b""

    def _hold(self, data: bytes, start: int) -> None:
        """Feed what comes before `start`; the rest waits."""
        self._tap.feed("rx", data[:start])
        self._held = data[start:]

    def _release(self) -> None:
        self._tap.feed("rx", self._held)
        self._held = b""


def _answer_start(prompts: re.Pattern[bytes], data: bytes, end: int) -> int:
    """Where the prompts and empty lines begin that end at `end`."""
    found = prompts.search(data[max(0, end - _MOST_PROMPT_BYTES) : end])
    return end if found is None else end - len(found[0])


def _overlap(data: bytes, mark: bytes) -> int:
    """How many of the last bytes of `data` may be the beginning of `mark`."""
    return next((size for size in range(min(len(data), len(mark) - 1), 0, -1) if mark.startswith(data[-size:])), 0)
