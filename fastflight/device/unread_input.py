"""Counts the bytes that a board may not have read, and tracks which program reads its input.

A program that never reads its input leaves every byte in the board's receive ring. Firmware over USB takes no further
byte when the ring is full, and then never sees a Ctrl-C. So requests that do not interrupt send at most `BUDGET_BYTES`
between two proofs that the board reads its input, all of them together.

One `UnreadInput` belongs to the line of a device. It lives longer than its ports, because opening a port does not empty
the ring of a board. Pass it all that the board sends (`received`). Before a request sends a byte, it asks `may_ask`. It
reports what it sends (`sent`), and what comes of it: `answered` or `unanswered`.

The output of the board shows which program reads its input::

    UNKNOWN     the line was opened, or another program had it: one byte may find out
    REPL        a banner with its prompt, or the answer to Ctrl-A: nobody else prints these
    NOBODY      a request was not answered: nothing is sent until a prompt appears, or a pause is over

Any program may print a prompt (`>>> `): after one, a request may ask again, within the budget. The pause is for one
that the host has not seen. It doubles each time.

The same output shows what the device is (`kind`). It is a MicroPython board once a REPL or an agent has answered. One
that has never answered may be an Arduino or a GPS. If it prints, it gets no further byte until it prints a prompt. That
is no proof: a MicroPython program prints and does not read, too. But nearly every program of MicroPython ends at
Ctrl-C. So a device that prints lines, and whose lines go on after an interrupt, is taken for one that only prints
(`uninterrupted`), until it shows a prompt or the line is lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import Enum

from fastflight.device.transfer.routines import HOST_SECONDS
from fastflight.protocol.agent_frames import has_announcement
from fastflight.protocol.traffic import END, HEADING
from fastflight.transport.url import LINES, MICROPYTHON, UNKNOWN_KIND

# The smallest receive ring holds 63 bytes, a quarter of which is ours.
BUDGET_BYTES = 16
# Doubled after each unanswered request: the last of sixteen bytes is sent after four days.
FIRST_PAUSE_SECONDS = 10.0
# More than the banner of the friendly REPL and its prompt, which may come in parts.
KEPT_BYTES = 512
# Only the newest output shows which program reads the input now. A bridge may receive hundreds of megabytes.
SEARCHED_BYTES = 8 * KEPT_BYTES

# The answers of the friendly REPL to Ctrl-B, and of the raw REPL to Ctrl-A. The words that each has are found faster.
BANNER = re.compile(rb"MicroPython [^\n]{1,200}\n[^\n]{0,200}\n>>> |" + HEADING + rb"\r?\n>")
BANNER_WORDS = (b"MicroPython ", HEADING)
# A line of text. At a wrong speed, boards seem to send arbitrary bytes.
TEXT_LINE = re.compile(rb"\n[\t -~\x80-\xf4]{3,}\r?\n")
# What aiorepl prints when it starts, and its usual prompt.
AIOREPL_START = b"Starting asyncio REPL"
AIOREPL_WORDS = (AIOREPL_START, b"\n--> ")
# What a request waits for at a board that may not answer.
FOUND = re.compile(b"|".join((BANNER.pattern, *AIOREPL_WORDS)))
_PROMPTS = (b">>> ", END + b">")


class Reader(Enum):
    """Who reads the input of a board."""

    UNKNOWN = "not known"
    REPL = "its REPL, or aiorepl in its program"
    NOBODY = "nobody who answers: a program"


class UnreadInput:
    """The input of one board."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reader = Reader.UNKNOWN
        # How many bytes of requests the board may not have read.
        self.unread = 0
        # The line was lost while the board ran fastflight's code, or received it.
        self.is_cut_off = False
        # It received the code, and would take Ctrl-B for a part of it.
        self.was_pasting = False
        # aiorepl has announced itself. It answers to Ctrl-A, and not to Ctrl-B.
        self.aiorepl = False
        # What the device is: `MICROPYTHON`, `LINES` or `UNKNOWN_KIND`.
        self.kind = UNKNOWN_KIND
        # The device has printed a line since it last answered, or since the line was opened.
        self.prints = False
        self._pause = FIRST_PAUSE_SECONDS
        self._next_ask = 0.0
        # When the line was opened, or another program had it.
        self._since = clock()
        self._tail = b""

    def may_ask(self, count: int) -> bool:
        """Return whether a request that does not interrupt may send `count` bytes now."""
        if self.kind == LINES:
            return False
        only_prints = self.prints and self.kind != MICROPYTHON
        if self.reader is Reader.NOBODY and (only_prints or self._clock() < self._next_ask):
            return False
        return self.unread + count <= BUDGET_BYTES

    def is_settled(self, seconds: float) -> bool:
        """Return whether the line is open, and no other program has had it, for so long."""
        return self._clock() - self._since >= seconds

    def sent(self, count: int) -> None:
        """Count bytes that a request sends before it knows whether the board reads them."""
        self.unread += count

    def cut_off(self, *, pasting: bool) -> None:
        """Note that the line was lost while the board ran fastflight's code, or, if `pasting`, received it."""
        self.is_cut_off, self.was_pasting = True, pasting

    def answered(self) -> None:
        """Note that the board has read all that was sent, and that its REPL or its agent has answered."""
        self.reader = Reader.REPL
        self.kind = MICROPYTHON
        self.prints = False
        self.unread = 0
        self.is_cut_off = self.was_pasting = False
        self._pause = FIRST_PAUSE_SECONDS

    def unanswered(self) -> None:
        """Note that a request got no answer."""
        self.reader = Reader.NOBODY
        if self.is_cut_off:
            # A byte would begin the time anew after which the board gives up.
            self._pause = max(self._pause, HOST_SECONDS + 1.0)
        self._next_ask = self._clock() + self._pause
        self._pause *= 2

    def uninterrupted(self) -> None:
        """Note that the board has not answered to an interrupt. `prints` was set to false before that."""
        if self.kind == UNKNOWN_KIND and self.prints:
            self.kind = LINES

    def forget_lines(self) -> None:
        """Note that the device may be a MicroPython board after all: it has printed a prompt, or is another one now."""
        if self.kind == LINES:
            self.kind = UNKNOWN_KIND

    def forget(self, *, empty: bool = False) -> None:
        """Forget which program reads the input. `empty`: the board has started anew, with an empty ring."""
        self.reader = Reader.UNKNOWN
        self.prints = False
        self._since = self._clock()
        self._tail = b""
        if empty:
            self.is_cut_off = self.was_pasting = False
            self.unread = 0
            self._pause = FIRST_PAUSE_SECONDS

    def received(self, data: bytes) -> None:
        """Process what the board sends."""
        text = (self._tail + data[-SEARCHED_BYTES:])[-SEARCHED_BYTES:]
        if self.reader is Reader.REPL and not self.unread:
            # A program with aiorepl may start here, and whoever started it then calls `forget`.
            self.aiorepl = self.aiorepl or AIOREPL_START in text
            start = text[max(0, text.rfind(AIOREPL_START[:1])) :]
            self._tail = start if AIOREPL_START.startswith(start) else b""
            return
        self._tail = text[-KEPT_BYTES:]
        if not self.prints and (line := TEXT_LINE.search(text)) is not None:
            self.prints = _is_text(line[0])
        if has_announcement(text):
            self._note_answer()
        elif b">" not in text and b"asyncio" not in text:
            return
        elif any(word in text for word in BANNER_WORDS) and BANNER.search(text):
            self._note_answer()
        elif any(word in text for word in AIOREPL_WORDS):
            self.aiorepl = True
            self._doubt()
        elif any(prompt in text for prompt in _PROMPTS):
            self._doubt()

    def _note_answer(self) -> None:
        self._tail = b""
        self.answered()

    def _doubt(self) -> None:
        self._tail = b""
        self.forget_lines()
        if self.reader is Reader.NOBODY:
            self.reader = Reader.UNKNOWN


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
