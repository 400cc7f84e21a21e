"""Telnet: commands apart from data, options that come to rest, and pairs of 0xFF at any speed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.telnet import (
    MAX_CHANGES,
    MAX_SUBNEGOTIATION_BYTES,
    Command,
    Event,
    Negotiated,
    Option,
    Subnegotiation,
    Telnet,
    TelnetCode,
    TelnetData,
)

IAC = b"\xff"
RUN = IAC * 64
BOTH = frozenset({Option.BINARY, Option.SUPPRESS_GO_AHEAD})

# Bytes that mean something, often enough to meet each other.
TELLING = st.sampled_from(
    [b"\xff", b"\xff\xff", b"\xff\xfa", b"\xff\xf0", b"\r", b"\0", b"\n", b"\xfb", b"\xfd", b"\xfe"]
)
WIRE = st.lists(TELLING | st.binary(max_size=4) | st.just(RUN) | st.just(b"x" * 300)).map(b"".join)


def says(code: TelnetCode, option: int) -> bytes:
    return bytes([0xFF, code, option])


def joined(events: list[Event]) -> list[Event]:
    """The events with neighbouring data as one."""
    result: list[Event] = []
    for event in events:
        if isinstance(event, TelnetData) and result and isinstance(before := result[-1], TelnetData):
            result[-1] = TelnetData(before.data + event.data)
        else:
            result.append(event)
    return result


def in_binary() -> Telnet:
    telnet = Telnet(BOTH, BOTH)
    telnet.ask(Option.BINARY, ours=True)
    telnet.ask(Option.BINARY, ours=False)
    telnet.feed(says(TelnetCode.DO, Option.BINARY) + says(TelnetCode.WILL, Option.BINARY))
    telnet.take()
    return telnet


def by_bytes(data: bytes) -> list[Event]:
    """What a plain state machine makes of `data`, one byte at a time, with every option refused."""
    events: list[Event] = []
    text, state, body, after_return = bytearray(), "text", bytearray(), False

    def literal(byte: int) -> None:
        nonlocal after_return
        if not (byte == 0 and after_return):
            text.append(byte)
        after_return = byte == 13

    def end_text() -> None:
        if text:
            events.append(TelnetData(bytes(text)))
            text.clear()

    for byte in data:
        if state == "text":
            if byte == 255:
                state = "command"
            else:
                literal(byte)
        elif state in ("command", "end of body"):
            inside, state = state == "end of body", "text"
            if byte == 255 and inside:
                body += b"\xff\xff"
                state = "body"
            elif byte == 255:
                literal(byte)
            elif byte == TelnetCode.SE and inside:
                if len(body) <= MAX_SUBNEGOTIATION_BYTES and (payload := body.replace(b"\xff\xff", b"\xff")):
                    end_text()
                    events.append(Subnegotiation(payload[0], bytes(payload[1:])))
            elif byte == TelnetCode.SB:
                body, state = bytearray(), "body"
            elif byte in (TelnetCode.WILL, TelnetCode.WONT, TelnetCode.DO, TelnetCode.DONT):
                state = "option"
            elif TelnetCode.NOP <= byte < TelnetCode.SB:
                end_text()
                events.append(Command(TelnetCode(byte)))
        elif state == "option":
            state = "text"
        elif byte == 255:
            state = "end of body"
        else:
            body.append(byte)
    end_text()
    return events


@given(WIRE)
def test_it_hears_what_a_plain_state_machine_hears(wire: bytes) -> None:
    assert joined(Telnet(frozenset(), frozenset()).feed(wire)) == by_bytes(wire)


@given(WIRE, st.lists(st.integers(0, 2000)))
def test_any_split_gives_the_same(wire: bytes, cuts: list[int]) -> None:
    whole, parts = Telnet(BOTH, BOTH), Telnet(BOTH, BOTH)
    expected = joined(whole.feed(wire))
    ends = sorted(min(cut, len(wire)) for cut in cuts)
    pieces = [wire[start:end] for start, end in zip([0, *ends], [*ends, len(wire)], strict=True)]
    heard = [event for piece in pieces for event in parts.feed(piece)]
    assert joined(heard) == expected
    assert parts.take() == whole.take()


@given(st.lists(st.binary() | st.just(RUN) | st.just(IAC)).map(b"".join))
def test_what_is_escaped_comes_back(data: bytes) -> None:
    ours, theirs = in_binary(), in_binary()
    assert ours.encode(data) == data.replace(IAC, b"\xff\xff")
    assert joined(theirs.feed(ours.encode(data))) == ([TelnetData(data)] if data else [])


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\0", b"\xff", b"x"])).map(b"".join))
def test_a_terminals_line_ends_come_back_too(data: bytes) -> None:
    """Where binary was never agreed on, a carriage return crosses as CR NUL."""
    ours, theirs = Telnet(BOTH, BOTH), Telnet(BOTH, BOTH)
    assert joined(theirs.feed(ours.encode(data))) == ([TelnetData(data)] if data else [])


def test_binary_is_sent_once_it_was_asked_for() -> None:
    telnet = Telnet(BOTH, BOTH)
    assert telnet.encode(b"\r\n") == b"\r\0\n"
    telnet.ask(Option.BINARY, ours=True)
    assert telnet.encode(b"\r\n") == b"\r\n"
    telnet.feed(says(TelnetCode.DONT, Option.BINARY))
    assert telnet.encode(b"\r\n") == b"\r\0\n"


def test_an_offer_is_taken_up_once() -> None:
    telnet = Telnet(BOTH, BOTH)
    assert telnet.feed(says(TelnetCode.DO, Option.BINARY)) == [Negotiated(Option.BINARY, ours=True, on=True)]
    assert telnet.take() == says(TelnetCode.WILL, Option.BINARY)
    assert telnet.feed(says(TelnetCode.DO, Option.BINARY) * 3) == []
    assert telnet.take() == b""


def test_an_answer_is_not_answered() -> None:
    telnet = Telnet(BOTH, BOTH)
    telnet.ask(Option.BINARY, ours=False)
    telnet.ask(Option.BINARY, ours=False)
    assert telnet.take() == says(TelnetCode.DO, Option.BINARY)
    assert not telnet.is_settled(Option.BINARY, ours=False)
    assert telnet.feed(says(TelnetCode.WILL, Option.BINARY)) == [Negotiated(Option.BINARY, ours=False, on=True)]
    assert telnet.is_on(Option.BINARY, ours=False)
    assert not telnet.unsent


def test_a_refusal_is_told_and_not_answered() -> None:
    telnet = Telnet(BOTH, BOTH)
    telnet.ask(Option.BINARY, ours=True)
    telnet.take()
    assert telnet.feed(says(TelnetCode.DONT, Option.BINARY)) == [Negotiated(Option.BINARY, ours=True, on=False)]
    assert telnet.take() == b""


def test_what_is_taken_back_is_acknowledged() -> None:
    telnet = in_binary()
    assert telnet.feed(says(TelnetCode.WONT, Option.BINARY)) == [Negotiated(Option.BINARY, ours=False, on=False)]
    assert telnet.take() == says(TelnetCode.DONT, Option.BINARY)


def test_an_unknown_option_is_refused_once() -> None:
    telnet = Telnet(BOTH, BOTH)
    assert telnet.feed(says(TelnetCode.DO, 31) + says(TelnetCode.WILL, 31)) == []
    assert telnet.take() == says(TelnetCode.WONT, 31) + says(TelnetCode.DONT, 31)
    assert telnet.feed(says(TelnetCode.DO, 31) * 100) == []
    assert telnet.take() == b""


def test_two_of_a_kind_come_to_rest() -> None:
    one, other = Telnet(BOTH, BOTH), Telnet(BOTH, BOTH)
    for side in (one, other):
        for option in BOTH:
            side.ask(option, ours=True)
            side.ask(option, ours=False)
    rounds = 0
    while one.unsent or other.unsent:
        rounds += 1
        to_other, to_one = one.take(), other.take()
        other.feed(to_other)
        one.feed(to_one)
    assert rounds == 1
    assert all(side.is_on(option, ours=ours) for side in (one, other) for option in BOTH for ours in (True, False))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TelnetCode.WILL, TelnetCode.WONT, TelnetCode.DO, TelnetCode.DONT]),
            st.sampled_from([0, 3, 31, 255]),
        )
    )
)
def test_each_word_has_one_answer_at_most(words: list[tuple[TelnetCode, int]]) -> None:
    telnet = Telnet(BOTH, BOTH)
    for code, option in words:
        telnet.feed(says(code, option))
        assert len(telnet.take()) in (0, 3)


def test_a_peer_that_changes_its_mind_without_end_is_left_alone() -> None:
    telnet = Telnet(BOTH, BOTH)
    telnet.feed((says(TelnetCode.WILL, Option.BINARY) + says(TelnetCode.WONT, Option.BINARY)) * 1000)
    assert len(telnet.take()) == 3 * MAX_CHANGES
    telnet.feed(b"".join(says(code, option) for option in range(256) for code in (TelnetCode.WILL, TelnetCode.DO)) * 3)
    # Each option was refused or taken up once, and binary on their side not heard any more.
    assert len(telnet.take()) == 3 * (256 * 2 - 1)


def test_commands_are_told_and_unknown_ones_skipped() -> None:
    telnet = in_binary()
    events = telnet.feed(b"a\xff\xf3b\xff\x07c\xff\xf0d")
    assert joined(events) == [TelnetData(b"a"), Command(TelnetCode.BREAK), TelnetData(b"bcd")]


def test_subnegotiations() -> None:
    telnet = in_binary()
    telnet.subnegotiate(44, b"\x01\xff\x02")
    wire = telnet.take()
    assert wire == b"\xff\xfa\x2c\x01\xff\xff\x02\xff\xf0"
    assert telnet.feed(b"a" + wire + b"b") == [TelnetData(b"a"), Subnegotiation(44, b"\x01\xff\x02"), TelnetData(b"b")]


def test_a_subnegotiation_that_never_ends_is_over_with_the_next_command() -> None:
    events = in_binary().feed(b"\xff\xfa\x2c\x01\x02\xff\xf3x")
    assert events == [Command(TelnetCode.BREAK), TelnetData(b"x")]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("length", [MAX_SUBNEGOTIATION_BYTES, MAX_SUBNEGOTIATION_BYTES + 1])
def test_the_longest_subnegotiation(length: int, step: int) -> None:
    wire = b"\xff\xfa" + b"\x2c" * length + b"\xff\xf0x"
    telnet = in_binary()
    heard = [event for at in range(0, len(wire), step) for event in telnet.feed(wire[at : at + step])]
    kept = [Subnegotiation(44, b"\x2c" * (length - 1))] if length == MAX_SUBNEGOTIATION_BYTES else []
    assert heard == [*kept, TelnetData(b"x")]


def test_an_endless_subnegotiation_is_not_kept() -> None:
    telnet = in_binary()
    telnet.feed(b"\xff\xfa\x2c")
    for _ in range(1000):
        assert telnet.feed(b"\xff\xff." * 1000) == []
    assert len(telnet._unfinished) <= 1
    assert telnet.feed(b"\xff\xf0still here") == [TelnetData(b"still here")]


@pytest.mark.parametrize("piece", [1447, 4095, 32 * 1024 + 1, 65535, 1 << 20])
@pytest.mark.parametrize("unit", [IAC * 2, b"a" + IAC * 2, IAC * 4 + b"\xf0"])
def test_pairs_that_are_split_everywhere_are_taken_back(unit: bytes, piece: int) -> None:
    units = 300_000 // len(unit)
    wire = unit * units + says(TelnetCode.WILL, 99) + unit
    telnet = in_binary()
    events = [event for at in range(0, len(wire), piece) for event in telnet.feed(wire[at : at + piece])]
    assert joined(events) == [TelnetData(unit.replace(IAC * 2, IAC) * (units + 1))]
    assert telnet.take() == says(TelnetCode.DONT, 99)
