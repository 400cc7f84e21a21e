"""The scripted board: what it accepts, what it refuses, and how it says so."""

from __future__ import annotations

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ProtocolError, TransportClosed, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Pause, Receive, Send
from tests.support.memory import Answer, Entry, HangUp, Silence, abandon, cut, play


def ask(question: bytes, until: bytes = b"\n") -> Conversation[bytes]:
    """A small conversation: one question, an answer that ends with `until`."""
    yield Send(question)
    heard = b""
    while not heard.endswith(until):
        heard += yield Receive(1.0)
    return heard


def upload() -> Conversation[int]:
    total = 0
    while piece := (yield Fetch()):
        yield Send(piece)
        yield Pause(0.5)
        total += len(piece)
    return total


def listen() -> Conversation[None]:
    while True:
        yield Deliver((yield Receive(1.0)))


def test_a_conversation_that_keeps_to_its_script_gives_its_result() -> None:
    assert play(ask(b"hi"), [Send(b"hi"), Answer(b"hel"), Answer(b"lo\n")]).result == b"hello\n"


def test_the_line_has_no_frames_so_sends_match_in_any_pieces() -> None:
    def dribble() -> Conversation[None]:
        yield Send(b"a")
        yield Send(b"")
        yield Send(b"bc")

    play(dribble(), [Send(b"abc")])
    play(dribble(), [Send(b"ab"), Send(b"c")])


@given(st.lists(st.integers(min_value=1, max_value=9)))
def test_any_split_of_the_answers_joins_to_the_same_bytes(sizes: list[int]) -> None:
    script: list[Entry] = [Send(b"hi"), Answer(b"first "), Answer(b"line\n")]
    assert play(ask(b"hi"), script, sizes=sizes).result == b"first line\n"


def test_answers_are_cut_by_the_sizes_in_turn_and_the_rest_comes_whole() -> None:
    script: list[Entry] = [Answer(b"abc"), Answer(b"def"), Send(b"x"), Answer(b"ghijk")]
    assert cut(script, [2, 3]) == [Answer(b"ab"), Answer(b"cde"), Answer(b"f"), Send(b"x"), Answer(b"ghijk")]
    assert cut(script[:2], repeat(1)) == [Answer(bytes([byte])) for byte in b"abcdef"]
    assert cut(script, []) == script


def test_fetched_content_pauses_and_deliveries_are_collected() -> None:
    played = play(upload(), [Send(b"onetwo")], content=[b"one", b"two"])
    assert played.result == 6
    assert played.pauses == (0.5, 0.5)

    def echo() -> Conversation[None]:
        yield Deliver((yield Receive(1.0)))
        yield Deliver(b"")
        yield Deliver((yield Receive(1.0)))

    echoed = play(echo(), [Answer(b"one"), Answer(b"two")])
    assert echoed.delivered == (b"one", b"", b"two")
    assert echoed.data == b"onetwo"


def test_silence_is_a_timeout_that_the_conversation_may_survive() -> None:
    def insist() -> Conversation[bytes]:
        try:
            return (yield Receive(1.0))
        except TransportTimeout:
            yield Send(b"again")
            return (yield Receive(1.0))

    assert play(insist(), [Silence(), Send(b"again"), Answer(b"yes")]).result == b"yes"
    with pytest.raises(TransportTimeout):
        play(ask(b"hi"), [Send(b"hi"), Silence()])


def test_a_closed_line_is_thrown_in_at_a_receive_and_at_a_send() -> None:
    with pytest.raises(TransportClosed):
        play(ask(b"hi"), [Send(b"hi"), HangUp()])
    with pytest.raises(TransportClosed):
        play(ask(b"hi"), [HangUp()])


def test_using_the_line_after_it_closed_fails() -> None:
    def stubborn() -> Conversation[bytes]:
        try:
            return (yield Receive(1.0))
        except TransportClosed:
            return (yield Receive(1.0))

    with pytest.raises(AssertionError, match="after it was closed"):
        play(stubborn(), [HangUp()])


def test_a_wrong_byte_shows_both_sides_and_the_transcript() -> None:
    def chat() -> Conversation[None]:
        yield from ask(b"hi")
        yield Send(b"wrong")

    with pytest.raises(AssertionError) as caught:
        play(chat(), [Send(b"hi"), Answer(b"hello\n"), Send(b"right")])
    assert str(caught.value).splitlines() == [
        "the conversation sent b'wrong' (5 bytes)",
        "the script has: Send b'right' (5 bytes)",
        "so far:",
        "     sent  b'hi' (2 bytes)",
        " received  b'hello\\n' (6 bytes)",
        "     sent  b'wrong' (5 bytes)",
    ]


def test_sending_before_the_answer_is_read_fails_unless_the_answer_may_wait() -> None:
    def hasty() -> Conversation[bytes]:
        yield Send(b"ab")
        return (yield Receive(1.0))

    with pytest.raises(AssertionError, match="not read yet"):
        play(hasty(), [Send(b"a"), Answer(b"x"), Send(b"b")])
    assert play(hasty(), [Send(b"a"), Answer(b"x", may_wait=True), Send(b"b")]).result == b"x"


def test_waiting_where_the_board_says_nothing_more_fails() -> None:
    with pytest.raises(AssertionError, match="waits for an answer"):
        play(ask(b"hi"), [Send(b"hi"), Answer(b"no end of line")])


@pytest.mark.parametrize("within", [0.0, -1.0, float("inf"), float("nan")])
def test_a_wait_without_a_deadline_fails(within: float) -> None:
    def patient() -> Conversation[bytes]:
        return (yield Receive(within))

    with pytest.raises(AssertionError, match="needs a deadline"):
        play(patient(), [Answer(b"x")])


def test_ending_before_the_script_does_fails() -> None:
    with pytest.raises(AssertionError, match="too early"):
        play(ask(b"hi"), [Send(b"hi"), Answer(b"\n"), Send(b"bye")])


def test_an_answer_left_unread_at_the_end_fails() -> None:
    def deaf() -> Conversation[None]:
        yield Send(b"ab")

    with pytest.raises(AssertionError, match="too early"):
        play(deaf(), [Send(b"ab"), Answer(b"x")])
    with pytest.raises(AssertionError, match="Answer b'x'"):
        play(deaf(), [Send(b"a"), Answer(b"x", may_wait=True), Send(b"b")])


def test_an_error_before_the_script_ends_fails_and_names_the_error() -> None:
    def broken() -> Conversation[None]:
        yield Send(b"a")
        raise ProtocolError("not a prompt")

    with pytest.raises(ProtocolError):
        play(broken(), [Send(b"a")])
    with pytest.raises(AssertionError, match="not a prompt"):
        play(broken(), [Send(b"a"), Answer(b"x")])


def test_an_abandoned_conversation_gives_what_it_had_delivered() -> None:
    assert abandon(listen(), [Answer(b"one"), Answer(b"two")]) == b"onetwo"


def test_a_conversation_that_speaks_while_it_is_closed_fails() -> None:
    def clingy() -> Conversation[None]:
        try:
            yield Receive(1.0)
            yield Receive(1.0)
        finally:
            yield Send(b"bye")

    with pytest.raises(AssertionError, match="while it was being closed"):
        abandon(clingy(), [Answer(b"x")])


def test_a_conversation_that_ends_before_it_is_abandoned_fails() -> None:
    with pytest.raises(AssertionError, match="before it was closed"):
        abandon(ask(b"hi"), [Send(b"hi"), Answer(b"\n")])
