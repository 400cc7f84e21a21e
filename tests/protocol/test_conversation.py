"""The inbox, and conversations that tick while they wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, Inbox, Receive, Send, on_silence, ticking
from tests.support.memory import Answer, Silence, play


@given(st.lists(st.integers(1, 5), max_size=30))
def test_the_inbox_gives_the_same_however_bytes_come(sizes: list[int]) -> None:
    inbox = Inbox()

    def read() -> Conversation[tuple[bytes, bytes, bytes]]:
        line = yield from inbox.until(b"\r\n", 1)
        four = yield from inbox.exactly(4, 1)
        rest = yield from inbox.until(b"!", 1)
        return line, four, rest

    played = play(read(), [Answer(b"one\r\ntwo!three!")], sizes=sizes) if sizes else None
    assert played is None or played.result == (b"one", b"two!", b"three")


def test_the_inbox_gives_back_what_belongs_to_others() -> None:
    inbox = Inbox()
    inbox.put_back(b"tail")
    inbox.put_back(b"head ")
    assert len(inbox) == 9
    assert inbox.take() == b"head tail"
    assert inbox.take() == b""


def test_a_marker_that_does_not_come_ends_at_the_limit() -> None:
    with pytest.raises(ProtocolError, match="sent 12 bytes"):
        play(Inbox().until(b"!", 1, limit=10), [Answer(b"x" * 12)])


def wait_for(within: float) -> Conversation[bytes]:
    yield Send(b"?")
    return (yield Receive(within))


def test_ticks_while_it_waits() -> None:
    played = play(ticking(wait_for(1), 0.25), [Send(b"?"), Silence(), Silence(), Answer(b"!")])
    assert (played.delivered, played.result) == ((b"", b""), b"!")


def test_the_deadline_stays_what_it_was() -> None:
    with pytest.raises(TransportTimeout):
        play(ticking(wait_for(1), 0.25), [Send(b"?"), *[Silence()] * 4])


def test_a_line_that_takes_nothing_ends_the_conversation_however_it_ticks() -> None:
    """That is no silence to wait through: whoever writes has waited long enough."""
    conversation = ticking(wait_for(1), 0.25)
    assert next(conversation) == Send(b"?")
    with pytest.raises(TransportTimeout, match="took nothing"):
        conversation.throw(TransportTimeout("the device took nothing for 10 s"))


def test_what_a_reaction_raises_ends_the_conversation_from_outside() -> None:
    seen: list[BaseException] = []

    def stubborn() -> Conversation[None]:
        try:
            yield Receive(1)
        except BaseException as error:
            seen.append(error)
            raise

    def alarm() -> Conversation[None]:
        raise ProtocolError("the board is gone")
        yield Send(b"")

    with pytest.raises(ProtocolError, match="the board is gone"):
        play(on_silence(stubborn(), 0.25, alarm), [Silence()])
    assert [type(error) for error in seen] == [GeneratorExit]


def test_a_shorter_wait_does_not_tick() -> None:
    assert play(ticking(wait_for(0.1), 0.25), [Send(b"?"), Answer(b"!")]).delivered == ()
