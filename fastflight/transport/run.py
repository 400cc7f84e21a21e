"""Carrying conversations out, once for threads and once for coroutines.

`run` and `arun` take a conversation to its result. `stream` and `astream` yield what it delivers, an item for each
`Deliver`; closing them early closes the conversation, which leaves the board in an unknown state. `content` answers
`Fetch`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, TypeVar

from fastflight.errors import TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Pause, Receive, Send, Step
from fastflight.transport.port import Gathering, Port

T = TypeVar("T")

# The line took no byte for this long: the peer is gone, or holds its flow control.
WRITE_SECONDS = 10.0


def run(
    conversation: Conversation[T],
    port: Port,
    content: Iterator[bytes] | None = None,
    *,
    timeout: float | None = None,
) -> T:
    """The result of `conversation`; what it delivers is dropped.

    When `timeout` seconds have passed, each further wait for the device fails at once: a board that talks without end
    is never silent, and would keep a conversation that looks for its answer in it for ever.
    """
    deadline = _deadline(timeout)
    try:
        step = next(conversation)
        while True:
            try:
                answer = _perform(_hurried(step, deadline), port, content)
            except TransportError as error:
                step = _told(conversation, step, error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


def stream(conversation: Conversation[None], port: Port) -> Generator[bytes, None, None]:
    """What `conversation` delivers, as it comes."""
    try:
        step = next(conversation)
        while True:
            if isinstance(step, Deliver):
                yield step.data
            try:
                answer = _perform(step, port, None)
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
            time.sleep(seconds)
        case Fetch():
            return next(content, b"") if content is not None else b""
        case Deliver():
            pass
    return b""


async def arun(
    conversation: Conversation[T],
    port: Port,
    content: AsyncIterator[bytes] | None = None,
    *,
    timeout: float | None = None,
) -> T:
    """`run`, on an event loop."""
    deadline = _deadline(timeout)
    try:
        step = next(conversation)
        while True:
            try:
                answer = await _aperform(_hurried(step, deadline), port, content) or b""
            except TransportError as error:
                step = _told(conversation, step, error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        conversation.close()


async def astream(conversation: Conversation[None], port: Port) -> AsyncGenerator[bytes, None]:
    """`stream`, on an event loop."""
    try:
        step = next(conversation)
        while True:
            if isinstance(step, Deliver):
                yield step.data
            try:
                answer = await _aperform(step, port, None) or b""
            except TransportError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration:
        return
    finally:
        conversation.close()


def _aperform(step: Step, port: Port, content: AsyncIterator[bytes] | None) -> Coroutine[Any, Any, bytes | None]:
    """What carries `step` out. On a fast line a coroutine more for each call of the port would be felt."""
    if isinstance(step, Send):
        return port.awrite(step.data, WRITE_SECONDS)
    if isinstance(step, Receive):
        return port.aread(step.within)
    return _aother(step, port, content)


async def _aother(step: Step, port: Port, content: AsyncIterator[bytes] | None) -> bytes:
    match step:
        case Pause(seconds):
            if isinstance(port, Gathering):
                # A pause is silence on the line: what was sent before it has to be there.
                await port.adrain(WRITE_SECONDS)
            await asyncio.sleep(seconds)
        case Fetch():
            return await anext(content, b"") if content is not None else b""
    return b""


def _told(conversation: Conversation[T], step: Step, error: TransportError) -> Step:
    """The step after one that failed. Content may come from a line as well, and without it there is no going on."""
    if isinstance(step, Fetch):
        raise error
    return conversation.throw(error)


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout


def _hurried(step: Step, deadline: float) -> Step:
    """`step`, waiting no longer than until `deadline`; `TransportTimeout` when that has passed."""
    if deadline == math.inf or not isinstance(step, Receive):
        return step
    left = deadline - time.monotonic()
    if left <= 0:
        raise TransportTimeout("the device talked on, and did not answer in time")
    return Receive(min(step.within, left))
