"""What a dialogue with a board is made of.

A conversation is a generator. It yields steps and is sent their results; its return value is the dialogue's result.
It does no I/O and knows no clock: `transport/run.py` carries the steps out, once for threads and once for coroutines.

=================  ==========================================================================================
step               what the conversation is sent
=================  ==========================================================================================
`Send(data)`       `b""`, when the line has taken all of `data`
`Receive(within)`  at least one byte; `TransportTimeout` is thrown in after `within` seconds of silence
`Pause(seconds)`   `b""`, after that time
`Deliver(data)`    `b""`, when the caller wants more: `data` is part of a streamed result
`Fetch()`          the next piece of the content that the caller supplies, `b""` after the last
=================  ==========================================================================================

`TransportClosed` may be thrown in at any step. A conversation that is closed early (`GeneratorExit`) must not yield
again: whoever closed it marks the session dirty, and recovery is a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from fastflight.errors import TransportTimeout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Put `data` on the line."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait at most `within` seconds for at least one byte."""

    within: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Let `seconds` pass: for boards that lose bytes sent too fast and have no other way to say so."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand `data` to the caller, as the next part of a streamed result. May be empty: a sign of life."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the caller for the next piece of content. Asked only when the piece before is safe on the board."""


Step = Send | Receive | Pause | Deliver | Fetch
Conversation = Generator[Step, bytes, T]


def ticking(conversation: Conversation[T], seconds: float) -> Conversation[T]:
    """The same conversation, which also delivers `b""` after each `seconds` of silence within its waits.

    So the caller of a stream gets the word now and then, to pass on what it holds or to notice that nobody listens.
    """
    try:
        step = next(conversation)
        while True:
            try:
                answer = (yield from _wait(step, seconds)) if isinstance(step, Receive) else (yield step)
            except Exception as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def _wait(step: Receive, seconds: float) -> Conversation[bytes]:
    left = step.within
    while left > seconds:
        try:
            return (yield Receive(seconds))
        except TransportTimeout:
            left -= seconds
            yield Deliver(b"")
    return (yield Receive(left))
