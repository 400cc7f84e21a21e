"""Executes conversations over a port, for threads and for coroutines.

`run` and `arun` execute a conversation and return its result; what it delivers is dropped. `stream` and `astream` yield
the data of each `Deliver`; closing them early closes the conversation, which leaves the board in an unknown state.
`content` is the iterator that answers `Fetch`.

A conversation goes on only while its caller waits for it. For a thread it runs on the loop of the port, from one step
that is for the caller (`Deliver`, `Fetch`) to the next, so a window of a transfer does not wait for a thread to wake.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Generic, TypeVar

from fastflight.errors import TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Limit, Pause, Receive, Send, Step
from fastflight.transport.loop_port import Port
from fastflight.transport.port import AsyncStream

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
    dialogue = _Dialogue(conversation, port, timeout)
    try:
        while (step := port.portal.call(dialogue.advance())) is not None:
            if isinstance(step, Fetch) and content is not None:
                dialogue.answer = next(content, b"")
        return dialogue.result
    finally:
        conversation.close()


def stream(conversation: Conversation[None], port: Port) -> Generator[bytes, None, None]:
    """Execute `conversation` and yield what it delivers."""
    dialogue = _Dialogue(conversation, port)
    try:
        while (step := port.portal.call(dialogue.advance())) is not None:
            if isinstance(step, Deliver):
                yield step.data
    finally:
        conversation.close()


async def arun(
    conversation: Conversation[T],
    port: AsyncStream,
    content: AsyncIterator[bytes] | None = None,
    *,
    timeout: float | None = None,
) -> T:
    """As `run`, on an event loop."""
    dialogue = _Dialogue(conversation, port, timeout)
    try:
        while (step := await dialogue.advance()) is not None:
            if isinstance(step, Fetch) and content is not None:
                dialogue.answer = await anext(content, b"")
        return dialogue.result
    finally:
        conversation.close()


async def astream(conversation: Conversation[None], port: AsyncStream) -> AsyncGenerator[bytes, None]:
    """As `stream`, on an event loop."""
    dialogue = _Dialogue(conversation, port)
    try:
        while (step := await dialogue.advance()) is not None:
            if isinstance(step, Deliver):
                yield step.data
    finally:
        conversation.close()


class _Dialogue(Generic[T]):
    """A conversation over `port`. Its waits are limited: all together to `timeout`, and by its `Limit` steps."""

    # The result of the conversation, once `advance` has returned None.
    result: T

    def __init__(self, conversation: Conversation[T], port: AsyncStream, timeout: float | None = None) -> None:
        self._conversation = conversation
        self._port = port
        self._begun = False
        # What answers the step that `advance` has returned.
        self.answer = b""
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._until = self._deadline

    async def advance(self) -> Deliver | Fetch | None:
        """Execute the conversation up to the next step that is for the caller. Return that step, or None at the end."""
        try:
            step = self._resume()
            while not isinstance(step, Deliver | Fetch):
                try:
                    self.answer = await self._perform(step)
                except TransportError as error:
                    step = self._conversation.throw(error)
                else:
                    step = self._resume()
        except StopIteration as end:
            self.result = end.value
            return None
        return step

    def _resume(self) -> Step:
        if not self._begun:
            self._begun = True
            return next(self._conversation)
        answer, self.answer = self.answer, b""
        return self._conversation.send(answer)

    async def _perform(self, step: Send | Receive | Pause | Limit) -> bytes:
        match step:
            case Send(data):
                await self._port.awrite(data, WRITE_SECONDS)
            case Receive(within):
                return await self._port.aread(self._limited(within))
            case Pause(seconds):
                # The pause is to be silence on the line, so the bytes before it must be sent first.
                await self._port.adrain(WRITE_SECONDS)
                await asyncio.sleep(seconds)
            case Limit(seconds):
                self._until = min(self._deadline, time.monotonic() + seconds)
        return b""

    def _limited(self, within: float) -> float:
        """Return the longest wait that is allowed now. `TransportTimeout` if there is no time left."""
        if self._until == math.inf:
            return within
        left = self._until - time.monotonic()
        if left <= 0:
            raise TransportTimeout("the device kept sending, but did not answer in time")
        return min(within, left)
