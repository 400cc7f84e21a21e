"""Separates the traffic of requests from what a board sends by itself.

A request takes a board from its prompt to the raw REPL, talks to it there, and leaves with Ctrl-B. The bytes between,
in both directions, belong to the request. Output of the board's program before the answer of the raw REPL, and after
the prompt has come back, does not. One read may contain both: it is then split.

::

    OUTSIDE -- begin(repl) --> ENTERING -- "raw REPL; CTRL-B to exit\\r\\n>" --> TALKING -- repl.leave() --> LEAVING
    LEAVING -- ">>> ", or LEAVE_SECONDS --> OUTSIDE
    ENTERING, TALKING -- end() --> OUTSIDE

In ENTERING and LEAVING, bytes that may be the beginning of the REPL's answer are held back until the next bytes decide.
A board whose program keeps running never gets to TALKING, so none of its output counts as traffic of a request.

If a program keeps running during requests (`repl.splitter`), these states are not used. The splitter recognises each
answer among the program's output, which goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from fastflight.protocol.agent import TrafficSplitter as AgentTraffic
from fastflight.protocol.agent_frames import ANNOUNCEMENT, MARK, Frame, FrameReader
from fastflight.protocol.aiorepl import overlap
from fastflight.protocol.raw_repl import HEADING, PROMPT, RawRepl, Splitter
from fastflight.transport.chunk_buffer import Direction
from fastflight.transport.tap import Tap

# A board answers Ctrl-B within milliseconds. After this time it was reset or does not answer, and further bytes do not
# belong to the request.
LEAVE_SECONDS = 1.0
# What the REPL answers to Ctrl-B: an empty line, a banner of two lines on most ports, and the prompt.
_LEFT = re.compile(rb"(?:\r?\n)?(?:MicroPython [^\n]{1,200}\n[^\n]{0,200}\n)?>>> ")
# The answer to Ctrl-A. The line end of aiorepl has no `\r` where the standard output adds none.
_BARE_PROMPT = HEADING + b"\n>"
_ENTERED = re.compile(HEADING + rb"\r?\n>")
# The possible beginnings of that answer, and of the answer to the Ctrl-A of the next request.
_BEGINNINGS = (b"\r\nMicroPython ", b"\r\n>>> ", PROMPT)
_BANNER = re.compile(rb"(?:\r?\n)?MicroPython [^\n]{0,200}(?:\n[^\n]{0,200}(?:\n>{0,3})?)?\Z")
# Prompts and empty lines, which the friendly REPL prints for the control characters of a request.
_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n)?\Z")
_MAYBE_PROMPTS = re.compile(rb"(?:(?:\r?\n)?>>> )*(?:\r?\n?>{0,3})\Z")
# More prompts and line ends than this are the output of a program, not the answer to a request.
_MOST_PROMPT_BYTES = 64


# More than an announcement of the agent has.
_MOST_ANNOUNCEMENT_BYTES = 64


class RequestFilter:
    """Feeds `tap` with the bytes of a line, and marks the bytes that belong to requests.

    Only the owner of the line may use it: it calls `begin`, `feed` for all bytes in both directions, then `end`.
    """

    def __init__(self, tap: Tap, clock: Callable[[], float] = time.monotonic) -> None:
        self._tap = tap
        self._clock = clock
        # Returns the REPL that the present request uses. It changes when another one answers.
        self._find_repl: Callable[[], RawRepl] | None = None
        self._splitter: Splitter | None = None
        # That of an agent which was asked and has not answered: its frames may still come, among the program's output.
        self._late: Splitter | None = None
        # An agent on the board has announced itself. The owner of the line may reset it.
        self.announced = False
        self._sniffed = b""
        # Line ends before the answer of the raw REPL, and that answer, until it is known whose line ends they are.
        self._entry = b"", b""
        # What came meanwhile.
        self._undecided = b""
        self._leaves = 0
        self._talking = False
        # In LEAVING: until when to wait for the answer to Ctrl-B.
        self._leave_deadline: float | None = None
        # Received bytes that are held back.
        self._pending = b""

    def expect_agent(self) -> None:
        """Tell the frames of an agent from the output of its program, also before the first request."""
        if self._splitter is None:
            self._splitter = AgentTraffic()

    def begin(self, find_repl: Callable[[], RawRepl]) -> None:
        """Call this when a request starts. `find_repl` returns the REPL through which it uses the line."""
        self._find_repl = find_repl
        self._leaves = find_repl().leaves

    def end(self) -> None:
        """Call this when the request has ended."""
        self._decide()
        if self._late is not None:
            self._check_left()
            late, self._late = self._late, None
            if self._talking or self._leave_deadline is not None:
                self._tap.feed("rx", late.flush())
            else:  # nobody else has answered: it may still do so
                self._release()
                self._splitter = late
        if self._splitter is not None:
            self._talking = False
            if not self._splitter.always:
                self._leave_deadline = self._clock() + LEAVE_SECONDS
            self._find_repl = None
            return
        self._check_left()
        if self._talking:
            self._talking = False
            self._tap.end_of_request(begins_line=False)
        if self._leave_deadline is None:
            self._release()
        self._find_repl = None

    @property
    def _repl(self) -> RawRepl | None:
        return None if self._find_repl is None else self._find_repl()

    def feed(self, direction: Direction, data: bytes) -> None:
        """Pass bytes that crossed the line on to the tap, at once or when it is known whether they are a request's."""
        if self._splitter is None and direction == "rx" and (self._sniffed or MARK in data):
            self._sniff(data)
        is_decided = self._splitter is None and self._repl is None  # most bytes: nothing waits to be decided
        if not is_decided and self._splits(direction, data):
            return
        if self._late is None or self._talking or direction == "tx":
            self._pass_on(direction, data)
            return
        for piece, is_answer in self._late.feed(data):
            if is_answer:
                self._tap.feed("rx", piece, request=True)
            else:
                self._pass_on("rx", piece)

    def _pass_on(self, direction: Direction, data: bytes) -> None:
        """Pass bytes on that are no frames of an agent."""
        if self._repl is None and self._leave_deadline is None:
            self._tap.feed(direction, data)
            return
        self._check_left()
        if self._talking:
            self._tap.feed(direction, data, request=True)
        elif direction == "tx":
            if self._repl is None:
                # Another owner has the line: the answers do not belong to the last request.
                self._leave_deadline = None
                self._release()
            self._tap.feed("tx", data, request=self._repl is not None)
        else:
            self._split(data)

    def _splits(self, direction: Direction, data: bytes) -> bool:
        """Pass bytes on if answers are told apart from a program's output by themselves. Return whether they are."""
        if self._repl is not None and self._repl.undecided:
            if direction == "rx":
                self._undecided += data
            else:
                self._tap.feed("tx", data, request=True)
            return True
        self._decide()
        if self._splitter is None:
            return False
        if self._repl is None and not self._splitter.always:
            if direction == "tx" or (self._leave_deadline is not None and self._clock() >= self._leave_deadline):
                # What comes now is no answer to the last request.
                self._tap.feed("rx", self._splitter.flush())
                self._splitter = self._leave_deadline = None
                return False
        if direction == "tx":
            self._tap.feed("tx", data, request=self._repl is not None)
        else:
            self._feed_split(data)
        return True

    def _decide(self) -> None:
        """Take over how answers are told apart from a program's output, and pass on what came before that was known."""
        if self._repl is not None and self._repl.splitter is not self._splitter:
            before, self._splitter = self._splitter, self._repl.splitter
            if before is not None and before.always and self._splitter is None:
                self._late = before
            elif before := before or self._late:
                self._tap.feed("rx", before.flush())
                self._late = None
            if self._splitter is not None:
                self._feed_entry(is_request=False)
                self._release()
                self._leave_deadline = None
        self._feed_entry(is_request=True)
        undecided, self._undecided = self._undecided, b""
        if self._splitter is not None:
            self._feed_split(undecided)
        else:
            self._tap.feed("rx", undecided, request=True)

    def _feed_split(self, data: bytes) -> None:
        assert self._splitter is not None
        for piece, is_answer in self._splitter.feed(data):
            self._tap.feed("rx", piece, request=is_answer)

    def _feed_entry(self, *, is_request: bool) -> None:
        """Pass on the answer of the raw REPL. `is_request`: the line ends before it belong to it."""
        before, answer = self._entry
        if answer:
            self._entry = b"", b""
            self._tap.feed("rx", before, request=is_request)
            self._tap.feed("rx", answer, request=True)

    def _sniff(self, data: bytes) -> None:
        """Look for the announcement of an agent in what the board sends."""
        self._sniffed = (self._sniffed + data)[-_MOST_ANNOUNCEMENT_BYTES - len(data) :]
        for each in FrameReader().feed(self._sniffed):
            if isinstance(each, Frame) and each.kind == ANNOUNCEMENT:
                self.announced = True
                if self._repl is None:
                    self.expect_agent()
        self._sniffed = self._sniffed[-_MOST_ANNOUNCEMENT_BYTES:] if MARK in self._sniffed[-64:] else b""

    def _check_left(self) -> None:
        """Change to LEAVING if the request has left the raw REPL."""
        if self._repl is not None and self._repl.leaves != self._leaves:
            self._leaves = self._repl.leaves
            if self._talking:
                self._talking = False
                self._tap.end_of_request(begins_line=False)
            # A request that looks for the prompt sends Ctrl-B as well.
            self._leave_deadline = self._clock() + LEAVE_SECONDS

    def _split(self, data: bytes) -> None:
        data, self._pending = self._pending + data, b""
        if self._leave_deadline is not None:
            data = self._split_leaving(data)
        if data and self._leave_deadline is None and self._repl is not None:
            data = self._split_entering(data)
        if data:
            self._tap.feed("rx", data)

    def _split_leaving(self, data: bytes) -> bytes:
        """Find the answer to Ctrl-B and feed it. Return the bytes after it, or none while it is incomplete."""
        if found := _LEFT.search(data):
            self._tap.feed("rx", data[: found.start()])
            self._tap.feed("rx", found[0], request=True)
            self._tap.end_of_request(begins_line=True)
            self._leave_deadline = None
            return data[found.end() :]
        entered = self._repl is not None and _ENTERED.search(data) is not None
        if entered or (self._leave_deadline is not None and self._clock() >= self._leave_deadline):
            self._leave_deadline = None
            return data
        found = _BANNER.search(data)
        self._hold(data, found.start() if found else len(data) - max(overlap(data, each) for each in _BEGINNINGS))
        return b""

    def _split_entering(self, data: bytes) -> bytes:
        """Find the answer to Ctrl-A, and feed it and the bytes after it as traffic of the request. Return no bytes."""
        found = _ENTERED.search(data)
        if found is None:
            at = len(data) - max(overlap(data, PROMPT), overlap(data, _BARE_PROMPT))
            start = _answer_start(_MAYBE_PROMPTS, data, at)
            self._hold(data, start if len(data) - start <= _MOST_PROMPT_BYTES else len(data))
            return b""
        at = found.start()
        start = _answer_start(_PROMPTS, data, at)
        self._tap.feed("rx", data[:start])
        self._entry = data[start:at], found[0]
        # Output of a program that goes on, or traffic of the request.
        self._undecided = data[found.end() :]
        self._talking = True
        return b""

    def _hold(self, data: bytes, start: int) -> None:
        """Feed the bytes before `start`, and hold back the rest."""
        self._tap.feed("rx", data[:start])
        self._pending = data[start:]

    def _release(self) -> None:
        self._tap.feed("rx", self._pending)
        self._pending = b""


def _answer_start(prompts: re.Pattern[bytes], data: bytes, end: int) -> int:
    """Return where the run of prompts and empty lines begins that ends at `end`."""
    found = prompts.search(data[max(0, end - _MOST_PROMPT_BYTES) : end])
    return end if found is None else end - len(found[0])
