"""Blocks and steps: what goes up the line, as the board reads it."""

from __future__ import annotations

import binascii
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device.transfer import frames
from fastflight.device.transfer.frames import (
    DEFLATED,
    END,
    FLUSH,
    VERIFY,
    buffer_bytes,
    escape,
    header,
    step_bytes,
    steps,
)


def taken(wire: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The content as `routines.PUT` takes it, and each block's kind and length."""
    content, kinds = b"", []
    while wire:
        head, wire = wire[:3], wire[3:]
        length = head[1] & 127 | (head[2] & 127) << 7
        body, wire = wire[:length], wire[length:]
        assert len(body) == length
        plain = body.replace(b"\x10S", b"\x03").replace(b"\x10P", b"\x10")
        payload = plain[4:]
        assert binascii.crc32(payload).to_bytes(4, "little") == plain[:4]
        kinds.append((head[0] & 127, length))
        content += zlib.decompress(payload, -15) if head[0] & DEFLATED else payload
    return content, kinds


@given(
    content=st.one_of(st.binary(max_size=3000), st.text("ab\x03\x10", max_size=2000).map(str.encode)),
    block=st.integers(16, 700),
    window=st.integers(60, 508),
    deflating=st.booleans(),
    start=st.integers(0, 100),
)
def test_steps_fit_and_add_up_and_interrupt_nobody(
    content: bytes, block: int, window: int, deflating: bool, start: int
) -> None:
    step = step_bytes(window)
    sent = list(steps(content, start, block, step, deflating))
    wire = b"".join(each.wire for each in sent)
    assert b"\x03" not in wire
    assert all(0 < len(each.wire) <= window // frames.STEPS for each in sent)
    found, kinds = taken(wire)
    assert found == content[start:]
    assert all(length <= buffer_bytes(block) for _, length in kinds)
    # Only the end of so short a piece is flushed, and every block's last step says how far it goes.
    assert [bool(kind & FLUSH) for kind, _ in kinds] == [False] * (len(kinds) - 1) + [True] * bool(kinds)
    done = [each.done for each in sent if each.done is not None]
    assert len(done) == len(kinds)
    assert done == sorted(set(done))
    assert done[-1:] == [len(content)] * bool(kinds)


def test_a_step_is_what_the_board_waits_for() -> None:
    step = step_bytes(60)
    sent = list(steps(bytes(100), 0, 128, step, False))
    sizes = [len(each.wire) - (3 if at == 0 else 0) for at, each in enumerate(sent)]
    assert sizes == [step] * (104 // step) + [104 % step] * bool(104 % step)


def test_the_worst_content_still_fits() -> None:
    worst = b"\x03\x10" * 500
    assert escape(worst) == b"\x10S\x10P" * 500
    content, kinds = taken(b"".join(each.wire for each in steps(worst, 0, 256, 100, False)))
    assert content == worst
    assert max(length for _, length in kinds) <= buffer_bytes(256)


def test_what_does_not_shrink_goes_as_it_is() -> None:
    incompressible = b"".join(hashlib.sha256(bytes([i])).digest() for i in range(16))
    _, kinds = taken(b"".join(each.wire for each in steps(incompressible + b"a" * 512, 0, 256, 100, True)))
    deflated = [bool(kind & DEFLATED) for kind, _ in kinds]
    assert deflated == sorted(deflated)
    assert (deflated[0], deflated[-1]) == (False, True)


@pytest.mark.parametrize("length", [0, 1, 3, 127, 128, 131, 384, 16383])
def test_headers_hold_no_control_characters(length: int) -> None:
    for kind in range(16):
        head = header(kind, length)
        assert min(head) >= 0x80
        assert (head[0] & 127, head[1] & 127 | (head[2] & 127) << 7) == (kind, length)


def test_the_end_says_whether_to_take_the_digest() -> None:
    assert frames.end(verify=True) == header(END | VERIFY, 0)
    assert frames.end(verify=False) == header(END, 0)


def test_a_long_piece_is_flushed_now_and_then() -> None:
    piece = bytes(3 * frames.FLUSH_BYTES)
    _, kinds = taken(b"".join(each.wire for each in steps(piece, 0, 2048, 160, False)))
    assert [at for at, (kind, _) in enumerate(kinds, 1) if kind & FLUSH] == [32, 64, 96]
