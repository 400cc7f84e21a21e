"""The scripted board: what it accepts, and every way in which a conversation must not leave its script."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ProtocolError, TransportClosed
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Pause, Receive, Send
from tests.support.memory import Answer, Entry, HangUp, abandon, play


def ask(question: bytes, until: bytes = b"\n") -> Conversation[bytes]:
    """A small conversation: one question, an answer that ends with `until`."""
    yield Send(question)
    heard = b""
    while not heard.endswith(until):
        heard += yield Receive(1.0)
    return heard


def hasty() -> Conversation[bytes]:
    yield Send(b"ab")
    return (yield Receive(1.0))


def stubborn() -> Conversation[bytes]:
    try:
        return (yield Receive(1.0))
    except TransportClosed:
        return (yield Receive(1.0))


def broken() -> Conversation[None]:
    yield Send(b"a")
    raise ProtocolError("not a prompt")


def clingy() -> Conversation[None]:
    try:
        yield Receive(1.0)
        yield Receive(1.0)
    finally:
        yield Send(b"bye")


def waits(within: float) -> Conversation[None]:
    yield Receive(within)


@given(st.lists(st.integers(min_value=1, max_value=9)))
def test_any_split_of_the_answers_joins_to_the_same_bytes(sizes: list[int]) -> None:
    script: list[Entry] = [Send(b"hi"), Answer(b"first "), Answer(b"line\n")]
    assert play(ask(b"hi"), script, sizes=sizes).result == b"first line\n"


def test_content_is_fetched_and_deliveries_are_collected() -> None:
    def upload() -> Conversation[int]:
        total = 0
        while piece := (yield Fetch()):
            yield Send(piece)
            yield Pause(0.5)
            total += len(piece)
        yield Deliver(b"done")
        return total

    played = play(upload(), [Send(b"onetwo")], content=[b"one", b"two"])
    assert (played.result, played.pauses, played.data) == (6, (0.5, 0.5), b"done")
    assert play(hasty(), [Send(b"a"), Answer(b"x", may_wait=True), Send(b"b")]).result == b"x"
    with pytest.raises(TransportClosed):
        play(ask(b"hi"), [Send(b"hi"), HangUp()])


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (lambda: play(ask(b"hi"), [Send(b"ho"), Answer(b"\n")]), "the script has: Send b'ho'"),
        (lambda: play(hasty(), [Send(b"a"), Answer(b"x"), Send(b"b")]), "not read yet"),
        (lambda: play(ask(b"hi"), [Send(b"hi"), Answer(b"no end of line")]), "waits for an answer"),
        (lambda: play(ask(b"hi"), [Send(b"hi"), Answer(b"\n"), Send(b"bye")]), "too early"),
        (lambda: play(broken(), [Send(b"a"), Answer(b"x")]), "not a prompt"),
        (lambda: play(stubborn(), [HangUp()]), "after it was closed"),
        (lambda: play(waits(0.0), [Answer(b"x")]), "needs a deadline"),
        (lambda: play(waits(float("inf")), [Answer(b"x")]), "needs a deadline"),
        (lambda: abandon(clingy(), [Answer(b"x")]), "while it was being closed"),
        (lambda: abandon(ask(b"hi"), [Send(b"hi"), Answer(b"\n")]), "before it was closed"),
    ],
)
def test_a_conversation_that_leaves_its_script_fails(failing: Callable[[], object], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        failing()
