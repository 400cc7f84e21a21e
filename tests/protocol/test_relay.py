"""The relay's frames: the same events however they are split, and never more on the way than there is credit for."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fastflight.protocol.relay import (
    HEADER_BYTES,
    MAX_CREDIT,
    MAX_PAYLOAD_BYTES,
    MAX_REASON_BYTES,
    MAX_STREAMS,
    MAX_TARGET_BYTES,
    MAX_UNANSWERED,
    Closed,
    Credited,
    End,
    Event,
    FrameType,
    Open,
    Opened,
    Reason,
    RelayConnection,
    RelayData,
    RelayViolation,
    violated,
)

WINDOW = 1000


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("!BBHI", kind, flags, stream, len(payload)) + payload


def count(value: int) -> bytes:
    return struct.pack("!I", value)


def opening(stream: int, target: bytes = b"host:1", credit: int = 100) -> bytes:
    return frame(FrameType.OPEN, stream, count(credit) + target)


def gateway() -> RelayConnection:
    return RelayConnection(accepts=True, window_bytes=WINDOW)


def heard(side: RelayConnection, *pieces: bytes) -> list[object]:
    """The events, data as bytes, and at last what was wrong. Each stream that is asked for is opened."""
    found: list[object] = []
    try:
        for piece in pieces:
            for event in side.feed(piece):
                found.append(RelayData(event.stream, bytes(event.data)) if isinstance(event, RelayData) else event)
                if isinstance(event, Open):
                    side.opened(event.stream)
                elif isinstance(event, Closed) and event.stream:
                    side.close(event.stream)
    except RelayViolation as error:
        found.append(error.what)
    return found


def pieces_of(wire: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    return [wire[start:end] for start, end in zip(places, places[1:], strict=False)]


STREAM = st.integers(0, 3)
FRAMES = st.one_of(
    st.builds(opening, STREAM, st.binary(max_size=6)),
    st.builds(frame, st.just(FrameType.DATA), STREAM, st.binary(min_size=1, max_size=400)),
    st.builds(frame, st.just(FrameType.END), STREAM),
    st.builds(frame, st.just(FrameType.CLOSE), STREAM, st.binary(max_size=9), st.integers(0, 255)),
    st.builds(frame, st.just(FrameType.CREDIT), STREAM, st.integers(0, 1 << 32).map(lambda n: count(n % (1 << 32)))),
    st.builds(frame, st.integers(0, 255), STREAM, st.binary(max_size=9), st.integers(0, 1)),
)
WIRE = st.lists(FRAMES, max_size=12).map(b"".join) | st.binary(max_size=40)


@given(WIRE, st.lists(st.integers(0, 1 << 20), max_size=12))
def test_any_split_gives_the_same_events_and_garbage_only_a_violation(wire: bytes, cuts: list[int]) -> None:
    assert heard(gateway(), *pieces_of(opening(1) + wire, cuts)) == heard(gateway(), opening(1) + wire)


@given(WIRE)
def test_byte_by_byte_too(wire: bytes) -> None:
    wire = opening(2) + wire
    assert heard(gateway(), *(wire[at : at + 1] for at in range(len(wire)))) == heard(gateway(), wire)


def test_a_stream_from_its_open_to_its_close() -> None:
    asking, asked = RelayConnection(accepts=False, window_bytes=100), gateway()
    assert list(asked.feed(asking.open(7, "board.local:23"))) == [Open(7, "board.local:23")]
    assert (asked.credit(7), asking.credit(7)) == (100, 0)
    assert list(asking.feed(asked.opened(7))) == [Opened(7)]
    assert asking.credit(7) == WINDOW
    assert heard(asked, asking.data(7, 5) + b"hello" + asking.end(7)) == [RelayData(7, b"hello"), End(7)]
    assert heard(asking, asked.data(7, 3) + b"yes" + asked.end(7)) == [RelayData(7, b"yes"), End(7)]
    last = asked.close(7)
    assert list(asking.feed(last)) == [Closed(7, Reason.DONE, "")]
    assert list(asked.feed(asking.close(7))) == []
    assert asked.streams == asking.streams == 0
    assert list(asked.feed(asking.open(7, "again:1"))) == [Open(7, "again:1")]


def test_a_refusal_has_its_reason() -> None:
    asked = gateway()
    list(asked.feed(opening(1)))
    assert asked.close(1, Reason.REFUSED, "not allowed") == frame(FrameType.CLOSE, 1, b"not allowed", Reason.REFUSED)
    assert asked.close(1) == b""


def test_what_was_sent_before_the_peer_knew_of_a_close_is_passed_over() -> None:
    asked = gateway()
    list(asked.feed(opening(1)))
    asked.opened(1)
    asked.close(1, Reason.RESET)
    late = frame(FrameType.DATA, 1, b"late") + frame(FrameType.CREDIT, 1, count(1)) + frame(FrameType.END, 1)
    assert heard(asked, late) == []
    assert heard(asked, frame(FrameType.CLOSE, 1)) == []
    assert heard(asked, frame(FrameType.DATA, 1, b"x")) == ["DATA for stream 1, which is not open"]


def test_credit_comes_back_in_halves_of_the_window() -> None:
    asked = gateway()
    list(asked.feed(opening(1)))
    asked.opened(1)
    assert asked.consumed(1, WINDOW // 2 - 1) == b""
    assert asked.consumed(1, 1) == frame(FrameType.CREDIT, 1, count(WINDOW // 2))


def test_the_last_byte_of_credit_is_taken_and_one_more_is_a_violation() -> None:
    asked = gateway()
    assert heard(asked, opening(1), frame(FrameType.DATA, 1, bytes(WINDOW))) == [
        Open(1, "host:1"),
        RelayData(1, bytes(WINDOW)),
    ]
    assert heard(asked, frame(FrameType.DATA, 1, b"x")) == ["1 bytes on stream 1, and credit for 0"]


def test_a_violation_is_told_as_the_last_frame_of_the_connection() -> None:
    said = violated(RelayViolation("too much"))
    assert heard(gateway(), said) == [Closed(0, Reason.VIOLATION, "too much")]
    assert heard(gateway(), said + b"\xff" * 20) == [Closed(0, Reason.VIOLATION, "too much")]


def test_a_reason_that_is_too_long_is_cut_at_a_character() -> None:
    asked = gateway()
    list(asked.feed(opening(1)))
    said = asked.close(1, Reason.UNREACHABLE, "é" * MAX_REASON_BYTES)
    assert said[HEADER_BYTES:].decode() == "é" * (MAX_REASON_BYTES // 2)


@pytest.mark.parametrize(
    "wire",
    [
        frame(0, 1),
        frame(7, 1),
        frame(FrameType.DATA, 0, b"x"),
        frame(FrameType.DATA, 1, b"x", flags=1),
        frame(FrameType.DATA, 9, b"x"),
        frame(FrameType.DATA, 1),
        struct.pack("!BBHI", FrameType.DATA, 0, 1, MAX_PAYLOAD_BYTES + 1),
        struct.pack("!BBHI", FrameType.CLOSE, 0, 1, MAX_REASON_BYTES + 1),
        opening(2, b""),
        opening(2, bytes(MAX_TARGET_BYTES + 1)),
        opening(2, b"\xff\xfe:1"),
        opening(1),
        opening(2, credit=MAX_CREDIT + 1),
        frame(FrameType.CREDIT, 1, count(MAX_CREDIT)),
        frame(FrameType.OPENED, 1, count(1)),
        frame(FrameType.END, 1) * 2,
        frame(FrameType.END, 1) + frame(FrameType.DATA, 1, b"x"),
        frame(FrameType.CLOSE, 1) * 2,
    ],
)
def test_what_the_rules_do_not_allow_is_a_violation(wire: bytes) -> None:
    *_, last = heard(gateway(), opening(1), wire)
    assert isinstance(last, str)


def test_who_opens_is_not_asked_and_sends_nothing_before_the_answer() -> None:
    asking = RelayConnection(accepts=False)
    assert heard(asking, opening(1)) == ["OPEN from the side that must not open streams"]
    asked = gateway()
    list(asked.feed(opening(1)))
    with pytest.raises(RelayViolation, match="before it is open"):
        list(asked.feed(frame(FrameType.DATA, 1, b"x")))


def test_closes_that_are_never_answered_have_an_end() -> None:
    asked = gateway()
    for stream in range(1, MAX_STREAMS + MAX_UNANSWERED + 1):
        assert len(list(asked.feed(opening(stream)))) == 1
        asked.close(stream, Reason.REFUSED)
    assert asked.streams == 0
    with pytest.raises(RelayViolation, match="not answered"):
        list(asked.feed(opening(60_000)))


@dataclass
class RelayWay:
    """One direction of one stream, as a model: what was sent, what arrived, what was given back."""

    sent: int = 0
    arrived: int = 0
    consumed: int = 0
    ended: bool = False


@dataclass
class Side:
    connection: RelayConnection
    incoming: deque[bytes] = field(default_factory=deque)


class TwoSides(RuleBasedStateMachine):
    """Two sides that follow the rules, and a network that delivers when it likes: nobody is ever in the wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = [
            Side(RelayConnection(accepts=False, window_bytes=WINDOW)),
            Side(RelayConnection(accepts=True, window_bytes=WINDOW)),
        ]
        self.ways: dict[tuple[int, int], RelayWay] = {}
        self.open: list[set[int]] = [set(), set()]

    def send(self, who: int, wire: bytes) -> None:
        if wire:
            self.sides[1 - who].incoming.append(wire)

    @rule(stream=st.integers(1, 3))
    def ask(self, stream: int) -> None:
        if stream not in self.sides[0].connection._streams:
            self.ways[0, stream], self.ways[1, stream] = RelayWay(), RelayWay()
            self.send(0, self.sides[0].connection.open(stream, "a:1"))

    @rule(who=st.integers(0, 1), stream=st.integers(1, 3), size=st.integers(1, 2 * WINDOW))
    def write(self, who: int, stream: int, size: int) -> None:
        side = self.sides[who]
        size = min(size, side.connection.credit(stream))
        if size and stream in self.open[who]:
            self.ways[who, stream].sent += size
            self.send(who, side.connection.data(stream, size) + bytes(size))

    @rule(who=st.integers(0, 1), stream=st.integers(1, 3))
    def end(self, who: int, stream: int) -> None:
        if stream in self.open[who] and not self.ways[who, stream].ended:
            self.ways[who, stream].ended = True
            self.send(who, self.sides[who].connection.end(stream))

    @rule(who=st.integers(0, 1), stream=st.integers(1, 3))
    def close(self, who: int, stream: int) -> None:
        if stream in self.open[who]:
            self.open[who].discard(stream)
            self.send(who, self.sides[who].connection.close(stream))

    @rule(who=st.integers(0, 1), stream=st.integers(1, 3), size=st.integers(1, 2 * WINDOW))
    def consume(self, who: int, stream: int, size: int) -> None:
        way = self.ways.get((1 - who, stream))
        if way is not None and stream in self.open[who] and (size := min(size, way.arrived - way.consumed)):
            way.consumed += size
            self.send(who, self.sides[who].connection.consumed(stream, size))

    @rule(who=st.integers(0, 1), size=st.integers(1, 3 * WINDOW))
    def deliver(self, who: int, size: int) -> None:
        side = self.sides[who]
        if not side.incoming:
            return
        wire = side.incoming.popleft()
        if wire[size:]:
            side.incoming.appendleft(wire[size:])
        for event in side.connection.feed(wire[:size]):
            self.take(who, event)

    def take(self, who: int, event: Event) -> None:
        match event:
            case Open(stream, _):
                self.open[who].add(stream)
                self.send(who, self.sides[who].connection.opened(stream))
            case Opened(stream):
                self.open[who].add(stream)
            case RelayData(stream, data):
                self.ways[1 - who, stream].arrived += len(data)
            case Closed(stream, _, _):
                self.open[who].discard(stream)
                self.send(who, self.sides[who].connection.close(stream))
            case End() | Credited():
                pass

    @invariant()
    def never_more_on_the_way_than_the_window(self) -> None:
        for way in self.ways.values():
            assert way.sent - way.consumed <= WINDOW
            assert way.arrived <= way.sent


TestTwoSides = TwoSides.TestCase
