"""Boards whose agent answers what no agent does: each request ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import repeat

import pytest

from fastflight.errors import ProtocolError, TransportTimeout
from fastflight.protocol import agent_frames as frames
from fastflight.protocol.agent import MAX_STRAY_FRAMES, AgentRepl
from fastflight.protocol.conversation import Conversation, Deliver, Limit, Receive

STEPS = 10 * MAX_STRAY_FRAMES


def run(conversation: Conversation[object], board: Iterator[bytes]) -> tuple[object, bytes]:
    """Run a conversation with a board that sends `board`. Return its result, and what it delivered."""
    delivered = b""
    step = next(conversation)
    for _ in range(STEPS):
        delivered += step.data if isinstance(step, Deliver) else b""
        try:
            step = conversation.send(next(board) if isinstance(step, Receive) else b"")
        except StopIteration as end:
            return end.value, delivered
    raise AssertionError("the request does not end")


def content(position: int, size: int) -> bytes:
    return frames.encode(frames.CONTENT, 1, position.to_bytes(4, "little") + bytes(size))


@pytest.mark.parametrize("board", [frames.encode(frames.OUTPUT, 77, b"x"), frames.encode(frames.ANNOUNCEMENT, 77, b"")])
@pytest.mark.parametrize(
    "request_of",
    [
        lambda agent: agent.submit(b"1"),
        lambda agent: agent.output(1.0),
        lambda agent: agent.content(0, 100),
        lambda agent: agent.write(0, b"content", 50),
    ],
    ids=["submit", "output", "content", "write"],
)
def test_frames_that_are_no_answer_end_a_request(
    request_of: Callable[[AgentRepl], Conversation[object]], board: bytes
) -> None:
    with pytest.raises(ProtocolError, match="the board sends frames, and no answer"):
        run(request_of(AgentRepl()), repeat(board))


def test_a_board_that_only_answers_does_not_announce_itself() -> None:
    reached, _ = run(AgentRepl().reach(1.0), repeat(frames.encode(frames.OUTPUT, 77, b"x")))
    assert reached is False


def test_a_program_that_prints_does_not_prolong_the_wait_for_an_announcement() -> None:
    # The program prints ten lines in a second of a clock that only this loop advances.
    now, limit = 0.0, math.inf
    reaching = AgentRepl().reach(0.5)
    step = next(reaching)
    with pytest.raises(StopIteration) as end:
        while True:
            if isinstance(step, Limit):
                limit = now + step.seconds
            if not isinstance(step, Receive):
                step = reaching.send(b"")
            elif now + 0.1 > limit:
                step = reaching.throw(TransportTimeout("no byte in time"))
            else:
                now += 0.1
                step = reaching.send(b"21.5\n")
    assert end.value.value is False
    assert now <= 0.5
    assert limit == math.inf  # for what comes next


def test_a_board_cannot_send_more_of_a_file_than_was_asked_for() -> None:
    agent = AgentRepl()
    run(agent.ask_for(100, 50), repeat(b""))
    board = iter([content(0, 50), content(50, 51)])
    assert run(agent.content(0, 100), board) == ((bytes(50), b""), b"")
    with pytest.raises(ProtocolError, match="more than it was asked for"):
        run(agent.content(50, 50), board)
