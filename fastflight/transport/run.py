"""Executes conversations over a port, for threads and for coroutines.

`run` and `arun` execute a conversation and return its result; what it delivers is dropped. `stream` and `astream` yield
the data of each `Deliver`; closing them early closes the conversation, which leaves the board in an unknown state.
`content` is the iterator that answers `Fetch`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, TypeVar

from fastflight.errors import TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Limit, Pause, Receive, Send, Step
from fastflight.transport.port import AsyncStream, Gathering, Port

T = TypeVar("T")

# A line that accepts no byte for this long has lost its peer, or the peer stops it by flow control.
WRITE_SECONDS = 10.0


def run(
    conversation: Conversation[T],
    port: Port,
    content: Iterator[bytes] | None = None,
    *,
    timeout: float | None = None,
) -> T:
    """Execute `conversation` and return its result.

    After `timeout` seconds, every further wait for the device raises `TransportTimeout`. The limits of the single waits
    do not stop a board that sends without end while the conversation searches its output for an answer.
    """
    waits = _Waits(timeout)
    try:
        step = next(conversation)
        while True:
            try:
                answer = _perform(waits.limited(step), port, content)
            except TransportError as error:
                step = _throw(conversation, step, error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def stream(conversation: Conversation[None], port: Port) -> Generator[bytes, None, None]:
    """Execute `conversation` and yield what it delivers."""
    waits = _Waits(None)
    try:
        step = next(conversation)
        while True:
            if isinstance(step, Deliver):
                yield step.data
            try:
                answer = _perform(waits.limited(step), port, None)
            except TransportError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration:
        return
    finally:
        conversation.close()


def _perform(step: Step, port: Port, content: Iterator[bytes] | None) -> bytes:
    match step:
        case Send(data):
            port.write(data, WRITE_SECONDS)
        case Receive(within):
            return port.read(within)
        case Pause(seconds):
            if isinstance(port, Gathering):
                # The pause is to be silence on the line, so the bytes before it must be sent first.
                port.drain(WRITE_SECONDS)
            time.sleep(seconds)
        case Fetch():
            return next(content, b"") if content is not None else b""
        case Limit() | Deliver():
            pass
    return b""


async def arun(
    conversation: Conversation[T],
    port: AsyncStream,
    content: AsyncIterator[bytes] | None = None,
    *,
    timeout: float | None = None,
) -> T:
    """As `run`, on an event loop."""
    waits = _Waits(timeout)
    try:
        step = next(conversation)
        while True:
            try:
                answer = await _aperform(waits.limited(step), port, content) or b""
            except TransportError as error:
                step = _throw(conversation, step, error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


async def astream(conversation: Conversation[None], port: Port) -> AsyncGenerator[bytes, None]:
    """As `stream`, on an event loop."""
    waits = _Waits(None)
    try:
        step = next(conversation)
        while True:
            if isinstance(step, Deliver):
                yield step.data
            try:
                answer = await _aperform(waits.limited(step), port, None) or b""
            except TransportError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration:
        return
    finally:
        conversation.close()


def _aperform(step: Step, port: AsyncStream, content: AsyncIterator[bytes] | None) -> Coroutine[Any, Any, bytes | None]:
    """Return the coroutine that executes `step`. Not an `async def`: a second coroutine for each step costs time."""
    if isinstance(step, Send):
        return port.awrite(step.data, WRITE_SECONDS)
    if isinstance(step, Receive):
        return port.aread(step.within)
    return _aperform_other(step, port, content)


async def _aperform_other(step: Step, port: AsyncStream, content: AsyncIterator[bytes] | None) -> bytes:
    match step:
        case Pause(seconds):
            if isinstance(port, Gathering):
                await port.adrain(WRITE_SECONDS)
            await asyncio.sleep(seconds)
        case Fetch():
            return await anext(content, b"") if content is not None else b""
    return b""


def _throw(conversation: Conversation[T], step: Step, error: TransportError) -> Step:
    """Throw the error of a failed step into the conversation, and return the next step.

    The error of a `Fetch` comes from the content, which may be read from another line: it ends the conversation.
    """
    if isinstance(step, Fetch):
        raise error
    return conversation.throw(error)


class _Waits:
    """Limits the waits of one conversation: all together to `timeout` seconds, and to what its `Limit` steps say."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._until = self._deadline

    def limited(self, step: Step) -> Step:
        """Return `step` with its wait limited. `TransportTimeout` if there is no time left."""
        if isinstance(step, Limit):
            self._until = min(self._deadline, time.monotonic() + step.seconds)
        if self._until == math.inf or not isinstance(step, Receive):
            return step
        left = self._until - time.monotonic()
        if left <= 0:
            raise TransportTimeout("the device kept sending, but did not answer in time")
        return Receive(min(step.within, left))
