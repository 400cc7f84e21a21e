"""Tells a board's answers to requests from what its program prints.

A request takes a board from its prompt to the raw REPL, talks to it there, and leaves with Ctrl-B. The bytes between
belong to the request. Output of the board's program before the answer of the raw REPL, and after the prompt has come
back, does not. One read may contain both: it is then split.

::

    OUTSIDE -- begin() --> ENTERING -- "raw REPL; CTRL-B to exit\\r\\n>" --> TALKING -- leave() --> LEAVING
    LEAVING -- ">>> ", or LEAVE_SECONDS --> OUTSIDE
    ENTERING, TALKING -- end() --> OUTSIDE

In ENTERING and LEAVING, bytes that may be the beginning of the REPL's answer are held back until the next bytes decide.
A board whose program keeps running never gets to TALKING, so none of its output counts as traffic of a request.

If a program goes on during requests (`beside`), TALKING is never reached. With aiorepl, the conversation says which
answers it expects (`expect`); bytes before the beginning of an answer are output of the program. The frames of an agent
are recognised at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fastflight.protocol.agent_frames import MARK, MAX_ANNOUNCEMENT_BYTES, Frame, FrameReader, encode, has_announcement

# The answer to Ctrl-A.
HEADING = b"raw REPL; CTRL-B to exit"
END = b"\x04"
# A board answers Ctrl-B within milliseconds. After this time it was reset or does not answer, and further bytes do not
# belong to the request.
LEAVE_SECONDS = 1.0
# What the REPL answers to Ctrl-B: an empty line, a banner of two lines on most ports, and the prompt.
_LEFT = re.compile(rb"(?:\r?\n)?(?:MicroPython [^\n]{1,200}\n[^\n]{0,200}\n)?>>> ")
# The answer to Ctrl-A. The line end of aiorepl has no `\r` where the standard output adds none.
_ENTERED = re.compile(HEADING + rb"\r?\n>")
HEADINGS = (HEADING + b"\r\n>", HEADING + b"\n>")
# The possible beginnings of the answer to Ctrl-B, and of that to the Ctrl-A of the next request.
_BEGINNINGS = (b"\r\nMicroPython ", b"\r\n>>> ", HEADINGS[0])
_BANNER = re.compile(rb"(?:\r?\n)?MicroPython [^\n]{0,200}(?:\n[^\n]{0,200}(?:\n>{0,3})?)?\Z")
# Prompts and empty lines, which the friendly REPL prints for the control characters of a request.
_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n)?\Z")
_MAYBE_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n?>{0,3})\Z")
# More prompts and line ends than this are the output of a program, not the answer to a request.
_MOST_PROMPT_BYTES = 64

# The beginnings of an answer.
Marks = tuple[bytes, ...]


def _ignore(*received: object) -> None:
    """The default: nobody wants to know."""


class Traffic:
    """Splits what a board sends. `heard` gets each part, and whether it belongs to a request.

    `ended` is called when the traffic of a request in the raw REPL has ended, with whether the prompt has come back.
    `clock` returns seconds.
    """

    def __init__(
        self,
        heard: Callable[[bytes, bool], object] = _ignore,
        ended: Callable[[bool], object] = _ignore,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._heard = heard
        self._ended = ended
        self._clock = clock
        # What goes on during requests: as `RawRepl.beside`.
        self._beside = "none"
        # Whether it is being found out if that is aiorepl.
        self.undecided = False
        # Whether an agent on the board has announced itself, or its frames are expected anyway.
        self.has_agent = False
        self._frames = FrameReader()
        self._sniffed = b""
        self._requested = False
        self._talking = False
        # In LEAVING: until when to wait for the answer to Ctrl-B.
        self._leave_deadline: float | None = None
        # The beginnings of each expected answer of aiorepl, and whether it goes on to the next prompt of the raw mode.
        self._expected: list[tuple[Marks, bool]] = []
        self._inside = False
        # Received bytes that are held back.
        self._held = b""
        # Line ends before the answer of the raw REPL, and that answer, until it is known whose line ends they are; and
        # what came meanwhile.
        self._entry = b"", b""
        self._undecided = b""

    # For requests.

    def begin(self, beside: str) -> None:
        """A request begins. `beside`: what went on during the last one."""
        self.use(beside)
        self._requested = True
        if beside != "none":
            self._leave_deadline = None

    def use(self, beside: str) -> None:
        """The request continues with another REPL: that of a program which goes on, or the board's own (`none`)."""
        if beside != self._beside:
            self._beside = beside
            self.forget()

    def talk(self) -> None:
        """The board is in its own raw REPL: all that it sends from now on belongs to the request."""
        self._decide()
        self._talking = True

    def expect(self, marks: Marks, *, closed: bool = False) -> None:
        """Expect an answer that begins with one of `marks`. `closed`: it goes on to the next prompt of the raw mode."""
        self._leave_deadline = None
        self._expected.append((marks, closed))

    def forget(self) -> None:
        """Expect nothing any more."""
        self._expected.clear()
        self._inside = False

    def leave(self) -> None:
        """The request sends Ctrl-B: what the board answers to that is the last of its traffic."""
        self._stop_talking()
        self._leave_deadline = self._clock() + LEAVE_SECONDS

    def end(self) -> None:
        """The request has ended."""
        self.undecided = False
        self._stop_talking()
        self._requested = False
        if (self._expected or self._inside) and self._leave_deadline is None:
            self._leave_deadline = self._clock() + LEAVE_SECONDS
        if self._leave_deadline is None:
            self._release()

    # For the port.

    def sending(self) -> bool:
        """Note that something is sent to the board. Return whether a request sends it."""
        if not self._requested and self._leave_deadline is not None:
            # Another owner has the line: the answers do not belong to the last request.
            self._release()
        return self._requested

    @property
    def is_idle(self) -> bool:
        """Whether all that the board sends is output of its program, until an agent announces itself."""
        return not (
            self._requested
            or self._talking
            or self._leave_deadline is not None
            or self.has_agent
            or self._sniffed
            or self._held
            or self._entry[1]
            or self._inside
            or self._expected
        )

    def received(self, data: bytes) -> None:
        """Pass on what the board has sent, at once or when it is known to whom it belongs."""
        if not self.has_agent and (self._sniffed or MARK in data):
            self._sniff(data)
        self._decide()
        if self._talking:
            self._heard(data, True)
        elif not self.has_agent:
            self._split(data)
        else:
            for each in self._frames.feed(data):
                if isinstance(each, Frame):
                    self._heard(encode(each.kind, each.number, each.payload), True)
                else:
                    self._split(each)

    def _sniff(self, data: bytes) -> None:
        """Look for the announcement of an agent in what the board sends."""
        text = self._sniffed + data
        self.has_agent = has_announcement(text)
        kept = text[-MAX_ANNOUNCEMENT_BYTES:]
        self._sniffed = kept if MARK in kept else b""

    def _split(self, data: bytes) -> None:
        """Process bytes that come outside of TALKING, and are no frames of an agent."""
        if self._entry[1]:
            self._undecided += data
            return
        data, self._held = self._held + data, b""
        if self._leave_deadline is not None and self._clock() >= self._leave_deadline:
            self._leave_deadline = None
            self.forget()
        if self._beside == "none":
            if self._leave_deadline is not None:
                data = self._split_leaving(data)
            if data and self._leave_deadline is None and self._requested:
                data = self._split_entering(data)
        elif self._beside == "aiorepl":
            data = self._split_answers(data)
        self._heard(data, False)

    def _split_leaving(self, data: bytes) -> bytes:
        """Find the answer to Ctrl-B and pass it on. Return the bytes after it, or none while it is incomplete."""
        if found := _LEFT.search(data):
            self._heard(data[: found.start()], False)
            self._heard(found[0], True)
            self._ended(True)
            self._leave_deadline = None
            return data[found.end() :]
        if self._requested and _ENTERED.search(data):
            self._leave_deadline = None
            return data
        found = _BANNER.search(data)
        self._hold(data, found.start() if found else len(data) - max(overlap(data, each) for each in _BEGINNINGS))
        return b""

    def _split_entering(self, data: bytes) -> bytes:
        """Find the answer to Ctrl-A, and keep it and the bytes after it until `_decide`. Return no bytes."""
        found = _ENTERED.search(data)
        if found is None:
            at = len(data) - max(overlap(data, each) for each in HEADINGS)
            start = _answer_start(_MAYBE_PROMPTS, data, at)
            self._hold(data, start if len(data) - start <= _MOST_PROMPT_BYTES else len(data))
            return b""
        at = found.start()
        start = _answer_start(_PROMPTS, data, at)
        self._heard(data[:start], False)
        self._entry = data[start:at], found[0]
        # Output of a program that goes on, or traffic of the request.
        self._undecided = data[found.end() :]
        return b""

    def _split_answers(self, data: bytes) -> bytes:
        """Find the answers of aiorepl that are expected, and pass on all up to them. Return the bytes after them."""
        while data and (self._inside or self._expected):
            if self._inside:
                at = data.find(END + b">")
                end = at + 2 if at >= 0 else len(data) - data.endswith(END)
                self._inside = at < 0
                self._heard(data[:end], True)
                data, self._held = (b"", data[end:]) if self._inside else (data[end:], b"")
                continue
            found = [
                (at, at + len(mark), number)
                for number, (marks, _) in enumerate(self._expected)
                for mark in marks
                if (at := data.find(mark)) >= 0
            ]
            if not found:
                self._hold(data, len(data) - max(overlap(data, mark) for marks, _ in self._expected for mark in marks))
                return b""
            start, end, number = min(found)
            self._inside = self._expected[number][1]
            del self._expected[: number + 1]
            # `\x04` at the end of the mark may begin the end of the answer.
            end -= self._inside and data[end - 1 : end] == END
            self._heard(data[:start], False)
            self._heard(data[start:end], True)
            data = data[end:]
        return data

    def _decide(self) -> None:
        """Pass on the answer of a raw mode and what came after it, once it is known whether a program goes on."""
        before, answer = self._entry
        if not answer or self.undecided:
            return
        self._entry = b"", b""
        undecided, self._undecided = self._undecided, b""
        self._talking = self._beside == "none"
        self._heard(before, self._talking)
        self._heard(answer, True)
        if self._talking:
            self._heard(undecided + self._frames.flush(), True)
        else:
            self._split(undecided)

    def _stop_talking(self) -> None:
        self._decide()
        if self._talking:
            self._talking = False
            self._ended(False)

    def _hold(self, data: bytes, start: int) -> None:
        """Pass on the bytes before `start`, and hold back the rest."""
        self._heard(data[:start], False)
        self._held = data[start:]

    def _release(self) -> None:
        """Pass on what was held back: no answer is awaited any more."""
        self._leave_deadline = None
        self.forget()
        held, self._held = self._held, b""
        self._heard(held, False)


def overlap(data: bytes, mark: bytes) -> int:
    """Return how many of the last bytes of `data` may be the beginning of `mark`."""
    return next((size for size in range(min(len(data), len(mark) - 1), 0, -1) if mark.startswith(data[-size:])), 0)


def _answer_start(prompts: re.Pattern[bytes], data: bytes, end: int) -> int:
    """Return where the run of prompts and empty lines begins that ends at `end`."""
    found = prompts.search(data[max(0, end - _MOST_PROMPT_BYTES) : end])
    return end if found is None else end - len(found[0])
