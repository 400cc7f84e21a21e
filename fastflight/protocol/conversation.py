"""The steps of a dialogue with a board.

A conversation is a generator. It yields steps and is sent their results; its return value is the dialogue's result.
It does no I/O and reads no clock. `transport/run.py` carries the steps out, in a thread or in a coroutine.

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
again: the caller that closes it marks the session dirty, and recovery is a separate conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from fastflight.errors import TransportTimeout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send `data` to the board."""

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
    """Pass `data` to the caller, as the next part of a streamed result. Empty data only shows progress."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the caller for the next piece of content. Asked only when the piece before is safe on the board."""


Step = Send | Receive | Pause | Deliver | Fetch
Conversation = Generator[Step, bytes, T]


def on_silence(
    conversation: Conversation[T], seconds: float, react: Callable[[], Conversation[None]]
) -> Conversation[T]:
    """Run `conversation`, and run `react()` after each `seconds` of silence while it waits.

    An error that `react` raises closes the conversation: its board has gone.
    """
    try:
        step = next(conversation)
        while True:
            outcome = yield from _patient(step, seconds, react)
            step = conversation.throw(outcome) if isinstance(outcome, Exception) else conversation.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def _patient(step: Step, seconds: float, react: Callable[[], Conversation[None]]) -> Conversation[bytes | Exception]:
    left = step.within if isinstance(step, Receive) else 0.0
    while True:
        try:
            return (yield Receive(min(left, seconds)) if left else step)
        except TransportTimeout as error:
            if not isinstance(step, Receive):
                return error
            left -= seconds
            if left <= 0:
                what = f"the device sent nothing for {step.within:g} s"
                return TransportTimeout(what, where=error.where, hint=error.hint)
        except Exception as error:
            return error
        yield from react()


def ticking(conversation: Conversation[T], seconds: float) -> Conversation[T]:
    """Run `conversation`, and deliver `b""` after each `seconds` of silence while it waits.

    The caller of a stream can then flush what it holds, or notice that its reader has gone.
    """
    return on_silence(conversation, seconds, _sign_of_life)


def _sign_of_life() -> Conversation[None]:
    yield Deliver(b"")
