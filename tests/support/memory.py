"""A board made of a script, so that a conversation can be tested without any I/O.

A script is the transcript that a conversation must produce, line by line::

    play(enter_raw_repl(), [Send(b"\\r\\x01"), Answer(b"raw REPL; CTRL-B to exit\\r\\n>")])

==============  =====================================================================================================
entry           what it stands for
==============  =====================================================================================================
`Send(data)`    the conversation sends these bytes here, in as many pieces as it likes
`Answer(data)`  the board says this; one `Receive` gets one `Answer`, unless `sizes` cuts them anew
`Silence()`     the next `Receive` gets `TransportTimeout`
`HangUp()`      the next `Send` or `Receive` gets `TransportClosed`, and there is no line after it
==============  =====================================================================================================

Anything else that happens raises `AssertionError` with the transcript so far and the entry that was expected. What the
conversation raises comes out of `play` unchanged, provided that the script was used up.

Answers are consumed before the next `Send`: a conversation that does not wait for its answer fails. Where a protocol
lets it send on (the window of raw paste), mark the answer with `may_wait=True`.

To test that the splits of a line do not matter, give `sizes`: adjacent answers are joined and cut into pieces of these
sizes, in turn, and what is left when the sizes run out comes whole. `itertools.repeat(1)` is byte by byte.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Generic, TypeVar, assert_never

from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Limit, Pause, Receive, Send, Step

T = TypeVar("T")

# A transcript in a failing test's output: enough lines to see how it came to this, few enough to read.
SHOWN_LINES = 30
# Of one entry: a chunk of a file is not read by a person beyond its first bytes.
SHOWN_BYTES = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """The board says `data`. With `may_wait` the conversation may send on before it has read this."""

    data: bytes
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """The board says nothing for as long as the conversation waits."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """The line closes."""


Entry = Send | Answer | Silence | HangUp


@dataclass(frozen=True, slots=True)
class Played(Generic[T]):
    """What came of a conversation: its `result`, the pieces it delivered, and the seconds it asked to pause."""

    result: T
    delivered: tuple[bytes, ...]
    pauses: tuple[float, ...]

    @property
    def data(self) -> bytes:
        """All that was delivered, in one piece."""
        return b"".join(self.delivered)


def play(
    conversation: Conversation[T],
    script: Iterable[Entry],
    *,
    sizes: Iterable[int] = (),
    content: Iterable[bytes] = (),
) -> Played[T]:
    """Run `conversation` against `script`, giving it the pieces of `content` when it fetches.

    The conversation must end by itself, with the script used up to its last byte.
    """
    board = _Board(cut(script, sizes), iter(content))
    try:
        result = _drive(conversation, board)
    except AssertionError:
        raise
    except Exception as error:
        if not board.used_up():
            raise board.failure(f"the conversation raised {error!r} too early") from error
        raise
    if not board.used_up():
        raise board.failure(f"the conversation ended with {_shorten(repr(result))} too early")
    return Played(result, tuple(board.delivered), tuple(board.pauses))


def abandon(
    conversation: Conversation[T],
    script: Iterable[Entry],
    *,
    sizes: Iterable[int] = (),
    content: Iterable[bytes] = (),
) -> bytes:
    """Run `conversation` until it needs the line beyond `script`, then close it as a caller does who leaves.

    Gives what was delivered. A conversation that yields while it is closed, or that ends before, fails.
    """
    board = _Board(cut(script, sizes), iter(content))
    try:
        step = next(conversation)
        while not board.used_up() or not isinstance(step, Send | Receive):
            step = board.advance(conversation, step)
    except StopIteration as stop:
        raise board.failure(f"the conversation ended with {_shorten(repr(stop.value))} before it was closed") from None
    try:
        conversation.close()
    except RuntimeError as error:
        raise board.failure("the conversation yielded a step while it was being closed") from error
    return b"".join(board.delivered)


def cut(script: Iterable[Entry], sizes: Iterable[int]) -> list[Entry]:
    """Join the adjacent answers of `script` and cut them into pieces of `sizes`; without sizes leave them as they are.

    Bytes on both sides of a `Send` are never joined: the board says the second part only when it has read.
    """
    size = iter(sizes)
    following = next(size, None)
    if following is None:
        return list(script)
    result: list[Entry] = []
    for (kind, may_wait), run in groupby(script, key=lambda e: (type(e), isinstance(e, Answer) and e.may_wait)):
        if kind is not Answer:
            result.extend(run)
            continue
        left = b"".join(entry.data for entry in run if isinstance(entry, Answer))
        while left:
            if following is None:
                piece = left
            else:
                piece = left[: max(1, following)]
                following = next(size, None)
            result.append(Answer(piece, may_wait))
            left = left[len(piece) :]
    return result


def _drive(conversation: Conversation[T], board: _Board) -> T:
    try:
        step = next(conversation)
        while True:
            step = board.advance(conversation, step)
    except StopIteration as stop:
        result: T = stop.value
        return result


@dataclass(slots=True)
class _Board:
    """The other side of one conversation: what is left of the script, and what has happened."""

    entries: Sequence[Entry]
    content: Iterator[bytes]
    script: deque[Entry] = field(default_factory=deque)
    unread: deque[Answer] = field(default_factory=deque)
    delivered: list[bytes] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.script.extend(entry for entry in self.entries if not (isinstance(entry, Send | Answer) and not entry.data))

    def used_up(self) -> bool:
        return not self.script and not self.unread

    def advance(self, conversation: Conversation[T], step: Step) -> Step:
        """Carry out `step` as the script has it, and give the step that follows."""
        match step:
            case Send(data):
                self.note("sent", data)
                return conversation.throw(self.hang_up()) if self.at_hang_up() else conversation.send(self.take(data))
            case Receive(within):
                if not (0 < within < math.inf):
                    raise self.failure(f"{step!r}: every wait needs a deadline")
                return self.receive(conversation, step)
            case Pause(seconds):
                self.note("paused", seconds)
                self.pauses.append(seconds)
                return conversation.send(b"")
            case Limit(seconds):
                self.note("limited to", seconds)
                return conversation.send(b"")
            case Deliver(data):
                self.note("delivered", data)
                self.delivered.append(data)
                return conversation.send(b"")
            case Fetch():
                piece = next(self.content, b"")
                self.note("fetched", piece)
                return conversation.send(piece)
            case _:
                assert_never(step)

    def take(self, data: bytes) -> bytes:
        """Check sent bytes against the script; the result of a `Send` step."""
        left = data
        while left:
            self.overtake()
            expected = self.script[0] if self.script else None
            if not isinstance(expected, Send):
                raise self.failure(f"the conversation sent {_show(left)}")
            length = min(len(left), len(expected.data))
            if left[:length] != expected.data[:length]:
                raise self.failure(f"the conversation sent {_show(left)}")
            left = left[length:]
            self.shorten(length)
        return b""

    def receive(self, conversation: Conversation[T], step: Receive) -> Step:
        if self.unread:
            answer = self.unread.popleft()
            self.note("received", answer.data)
            return conversation.send(answer.data)
        if self.at_hang_up():
            return conversation.throw(self.hang_up())
        match self.script[0] if self.script else None:
            case Answer(data):
                self.script.popleft()
                self.note("received", data)
                return conversation.send(data)
            case Silence():
                self.script.popleft()
                self.note("received", "nothing")
                return conversation.throw(TransportTimeout(f"no byte within {step.within} s", where="script"))
            case _:
                raise self.failure(f"the conversation waits for an answer: {step!r}")

    def overtake(self) -> None:
        """Put aside the answers that the conversation may leave unread while it sends."""
        while self.script:
            entry = self.script[0]
            if not isinstance(entry, Answer) or not entry.may_wait:
                return
            self.unread.append(entry)
            self.script.popleft()

    def shorten(self, length: int) -> None:
        """Take `length` bytes off the front of the `Send` that comes next."""
        entry = self.script.popleft()
        if isinstance(entry, Send) and length < len(entry.data):
            self.script.appendleft(replace(entry, data=entry.data[length:]))

    def at_hang_up(self) -> bool:
        if self.closed:
            raise self.failure("the conversation uses the line after it was closed")
        return bool(self.script) and isinstance(self.script[0], HangUp)

    def hang_up(self) -> TransportClosed:
        self.script.popleft()
        self.closed = True
        self.note("line", "closed")
        return TransportClosed("the line was closed", where="script")

    def note(self, what: str, value: object) -> None:
        self.transcript.append(f"{what:>9}  {_show(value) if isinstance(value, bytes) else value}")

    def failure(self, what: str) -> AssertionError:
        """The error of a test: what happened, what the script has instead, and how it came to this."""
        following = next(iter((*self.unread, *self.script)), None)
        expected = _describe(following) if following else "the end of the conversation"
        skipped = len(self.transcript) - SHOWN_LINES
        before = [f"      ...  {skipped} lines"] if skipped > 0 else []
        lines = [what, f"the script has: {expected}", "so far:", *before, *self.transcript[-SHOWN_LINES:]]
        return AssertionError("\n".join(lines))


def _describe(entry: Entry) -> str:
    match entry:
        case Send(data):
            return f"Send {_show(data)}"
        case Answer(data):
            return f"Answer {_show(data)}, not read yet"
        case _:
            return repr(entry)


def _show(data: bytes) -> str:
    return f"{_shorten(repr(data))} ({len(data)} bytes)"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}..."
