"""The steps of a dialogue with a board.

A conversation is a generator that does no I/O and reads no clock. It yields steps. A runner (`transport/run.py`)
performs each step, in a thread or in a coroutine, and sends the step's result into the generator. The return value of
the generator is the result of the dialogue.

=================  ==========================================================================================
step               result that the runner sends
=================  ==========================================================================================
`Send(data)`       `b""`, when the line has taken all of `data`
`Receive(within)`  at least one byte; the runner throws `TransportTimeout` after `within` seconds of silence
`Pause(seconds)`   `b""`, after that time
`Limit(seconds)`   `b""`; from now on a `Receive` waits at most until these seconds have passed (`inf`: no limit)
`Deliver(data)`    `b""`, when the caller wants more; `data` is part of a streamed result
`Fetch()`          the next piece of the content that the caller supplies, `b""` after the last
=================  ==========================================================================================

The runner may throw `TransportClosed` at any step. A conversation that is closed early (`GeneratorExit`) must not
yield again: the caller that closes it marks the session dirty, and recovery is a separate conversation.
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
    """Wait for `seconds`, for boards that lose bytes sent too fast and have no flow control."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Let no further `Receive` wait for longer than until `seconds` from now, also if the board keeps sending."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass `data` to the caller, as the next part of a streamed result. Empty data only reports progress."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the caller for the next piece of content, once the piece before it is safe on the board."""


Step = Send | Receive | Pause | Limit | Deliver | Fetch
Conversation = Generator[Step, bytes, T]


def on_silence(
    conversation: Conversation[T], seconds: float, react: Callable[[], Conversation[None]]
) -> Conversation[T]:
    """Run `conversation`, and run `react()` after each `seconds` of silence while it waits in `Receive`.

    An error that `react` raises closes the conversation and propagates.
    """
    try:
        step = next(conversation)
        while True:
            outcome = yield from _step_outcome(step, seconds, react)
            step = conversation.throw(outcome) if isinstance(outcome, Exception) else conversation.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def _step_outcome(
    step: Step, seconds: float, react: Callable[[], Conversation[None]]
) -> Conversation[bytes | Exception]:
    """Return the result of `step`, or the exception that the runner threw. Split a long `Receive` into short ones."""
    remaining = step.within if isinstance(step, Receive) else 0.0
    while True:
        try:
            return (yield Receive(min(remaining, seconds)) if remaining else step)
        except TransportTimeout as error:
            if not isinstance(step, Receive):
                return error
            remaining -= seconds
            if remaining <= 0:
                what = f"the device sent nothing for {step.within:g} s"
                return TransportTimeout(what, where=error.where, hint=error.hint)
        except Exception as error:
            return error
        yield from react()


def ticking(conversation: Conversation[T], seconds: float) -> Conversation[T]:
    """Run `conversation`, and deliver `b""` after each `seconds` of silence while it waits in `Receive`.

    The empty delivery lets the caller of a stream flush its buffers, or notice that its reader has disconnected.
    """
    return on_silence(conversation, seconds, _deliver_nothing)


def _deliver_nothing() -> Conversation[None]:
    yield Deliver(b"")
