"""Binary frames against transcripts: the window, refusals, and what a line does to them."""

from __future__ import annotations

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device import Inventory, frames
from fastflight.device.capabilities import Capabilities
from fastflight.device.digest import Digest
from fastflight.device.frames import END_FRAME, FLUSH_FRAME, RECEIVE, cut, escaped, frame_bytes, header, send, taken_by
from fastflight.errors import DeviceFull, ProtocolError, TransportTimeout
from fastflight.protocol import RawRepl
from fastflight.testing.memory import Answer, Entry, Send, Silence, play

BOARD = Capabilities(frozenset({"stdin.buffer", "stdout.buffer", "binascii.crc32", "os.mkdir"}), platform="esp32")
FRAME = frame_bytes("esp32")
CODE = RECEIVE.format(size=FRAME).encode()
STARTED: list[Entry] = [
    Send(b"\x05A\x01"),
    Answer(b"R\x01\x00\x20"),
    Send(CODE + b"\x04"),
    Answer(b"\x04R"),
]
ENDED: list[Entry] = [Send(END_FRAME), Answer(b"\x04\x04>")]


def written(content: bytes) -> bytes:
    return b"A" + binascii.crc32(content).to_bytes(4, "little")


def sent(script: list[Entry], *content: bytes) -> Digest:
    return play(send(RawRepl(True), BOARD, "/x", Digest()), [*STARTED, *script], content=content).result


@given(st.binary(max_size=2000), st.integers(2, 300))
def test_frames_fit_and_add_up_and_interrupt_nobody(content: bytes, size: int) -> None:
    frames = list(cut(content, size))
    assert b"".join(raw for raw, _ in frames) == content
    for raw, wire in frames:
        assert 0 < len(wire) <= size
        assert b"\x03" not in header(len(wire)) + wire
        # As the board's code does it.
        assert wire.replace(b"\x10S", b"\x03").replace(b"\x10P", b"\x10") == raw


def test_the_worst_content_still_fits() -> None:
    worst = b"\x03\x10" * 100
    assert escaped(worst) == b"\x10S\x10P" * 100
    assert [len(wire) for _, wire in cut(worst, 100)] == [100] * 4


def test_lengths_are_never_control_characters() -> None:
    for length in (1, 3, 127, 128, 131, 384, 16382):
        low, high = header(length)
        assert min(low, high) >= 0x80
        assert (low & 127) | (high & 127) << 7 == length
    assert FLUSH_FRAME == header(16383)
    assert END_FRAME == header(0)


def test_a_piece_is_flushed_before_the_next_is_asked_for() -> None:
    script: list[Entry] = [
        Send(header(3) + b"abc" + FLUSH_FRAME),
        Answer(written(b"abc") * 2, may_wait=True),
        Send(header(2) + b"de" + FLUSH_FRAME),
        Answer(written(b"abcde") * 2),
        *ENDED,
    ]
    digest = sent(script, b"abc", b"de")
    assert (digest.size, digest.crc32) == (5, f"{binascii.crc32(b'abcde'):08x}")


def test_two_frames_are_on_the_way_and_no_more() -> None:
    first, second, third = (bytes([letter]) * FRAME for letter in b"abc")
    script: list[Entry] = [
        Send(header(FRAME) + first + header(FRAME) + second),
        Answer(written(first)),
        Send(header(FRAME) + third),
        # A flush is two bytes, for which the ring's margin has room.
        Answer(written(first + second), may_wait=True),
        Send(FLUSH_FRAME),
        Answer(written(first + second + third) * 2),
        *ENDED,
    ]
    assert sent(script, first + second + third).size == 3 * FRAME


def test_nothing_is_an_empty_file() -> None:
    assert sent(list(ENDED)).size == 0


def test_a_refused_frame_ends_the_frames_and_the_board_says_why() -> None:
    script: list[Entry] = [
        Send(header(3) + b"abc" + FLUSH_FRAME),
        Answer(b"EE"),
        Send(END_FRAME),
        Answer(b"\x04Traceback (most recent call last):\r\nOSError: 28\r\n\x04>"),
    ]
    with pytest.raises(DeviceFull, match="/x: no space left"):
        sent(script, b"abc", b"never asked for")


@pytest.mark.parametrize("answer", [b"A\0\0\0\0", b"?", b"\x04"], ids=["other content", "other answer", "the end"])
def test_an_answer_that_does_not_fit_is_damage(answer: bytes) -> None:
    with pytest.raises(ProtocolError, match="/x: what the board took is not what was sent"):
        sent([Send(header(3) + b"abc" + FLUSH_FRAME), Answer(answer)], b"abc")


def test_a_frame_that_lost_bytes_is_never_answered() -> None:
    with pytest.raises(TransportTimeout):
        sent([Send(header(3) + b"abc" + FLUSH_FRAME), Silence()], b"abc")


def test_who_takes_frames() -> None:
    assert taken_by(RawRepl(True), BOARD)
    assert not taken_by(RawRepl(False), BOARD)
    assert not taken_by(RawRepl(True), Capabilities(BOARD.features - {"stdin.buffer"}))
    assert not taken_by(RawRepl(True), Capabilities(BOARD.features, platform="webassembly"))


def test_frames_on_the_way_fit_the_ring() -> None:
    for platform, ring in (("esp32", 260), ("samd", 128), ("nrf", 64), ("anything", 512)):
        assert 2 * (frame_bytes(platform) + 2) + len(FLUSH_FRAME) < ring


@pytest.mark.firmware
def test_the_real_machine_takes_frames_too(webassembly_without_raw_paste: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MicroPython itself runs the board's part. It is not offered there, because nothing could interrupt it."""
    monkeypatch.setattr(frames, "taken_by", lambda repl, capabilities: True)
    content = bytes(range(256)) * 40
    with (
        Inventory({"vm": webassembly_without_raw_paste}) as inventory,
        inventory.device("vm").lease("test") as session,
    ):
        assert session.write("/x.bin", [content[:3000], content[3000:]]).verified == "sha256"
        assert b"".join(session.read("/x.bin")) == content
        assert session.write("/empty.bin", []).bytes == 0
