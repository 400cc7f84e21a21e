"""Rules of the relay's protocol and of WebSockets that a client breaks."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from websockets.frames import Close, CloseCode, Frame, Opcode

from fastflight.gateway.relay.client import MAX_MESSAGE_BYTES
from fastflight.protocol import relay
from fastflight.protocol.relay import Closed, FrameType, Reason

from .relay_user import deaf, echo, masked, opened, relayed, target


def test_a_byte_more_than_there_is_credit_for_ends_the_connection(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.open(2, "127.0.0.1:x")
            while size := min(60_000, user.connection.credit(1)):
                await user.say(user.connection.data(1, size) + bytes(size))
                # The answer to it is behind what credit there was: the system's own buffers took some.
                await user.say(b"", Opcode.PING)
                while not isinstance(await user.next(), Frame):
                    pass
            await user.say(relay.header(FrameType.DATA, 1, 1) + b"x")
            event = await user.next()
            assert isinstance(event, Closed) and (event.stream, event.reason) == (0, Reason.VIOLATION)
            assert event.text == "1 bytes on stream 1, and credit for 0"
            assert isinstance(await user.next(), Close)
            assert await user.next() is None
            assert client.streams == 0

    run(work())


def violations() -> dict[str, bytes]:
    return {
        "garbage": b"\xff" * 20,
        "a stream that is not open": relay.header(FrameType.END, 99, 0),
    }


@pytest.mark.parametrize("what", violations())
def test_rules_that_are_broken_end_the_connection_with_the_reason(run: Any, what: str) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.say(violations()[what])
            event = await user.next()
            while not isinstance(event, Closed):
                assert event is not None
                event = await user.next()
            assert (event.stream, event.reason) == (0, Reason.VIOLATION) and event.text
            closed = await user.next()
            assert closed == Close(CloseCode.PROTOCOL_ERROR, event.text)
            assert await user.next() is None
            assert client.streams == 0

    run(work())


def frame(first: int, payload: bytes = b"") -> bytes:
    """A frame with this first byte, which may be wrong, as a client sends it."""
    whole = masked(payload)
    return bytes((first,)) + whole[1:]


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(0x88, struct.pack("!H", code) + reason)


# What a client may not send (RFC 6455, by clause).
PROTOCOL_ERRORS = {
    **{f"5.2 reserved bit {bit:#x}": frame(0x82 | bit, b"x") for bit in (0x40, 0x20, 0x10)},
    **{f"5.2 reserved bit {bit:#x} of a ping": frame(0x89 | bit, b"x") for bit in (0x40, 0x20, 0x10)},
    **{f"5.2 opcode {code}": frame(0x80 | code) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "5.1 not masked": b"\x82\x05hello",
    "5.1 a close that is not masked": b"\x88\x00",
    "5.4 a fragment of nothing": frame(0x80, b"x"),
    "5.4 a last fragment twice": frame(0x02) + frame(0x80) + frame(0x80),
    "5.4 a message within a message": frame(0x02) + frame(0x82),
    **{f"5.5 a fragmented {code:#x}": frame(code) for code in (8, 9, 10)},
    **{f"5.5 a long {code:#x}": frame(0x80 | code, bytes(126)) for code in (8, 9, 10)},
    "5.5.1 half a code": frame(0x88, b"\x03"),
    **{f"7.4 code {code}": closing(code) for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000)},
    "an HTTP request": b"GET / HTTP/1.1\r\n",
    "the beginning of TLS": b"\x16\x03\x01",
}
ENDS = {
    **{what: (wire, CloseCode.PROTOCOL_ERROR) for what, wire in PROTOCOL_ERRORS.items()},
    "text": (masked(b"hello", Opcode.TEXT), CloseCode.UNSUPPORTED_DATA),
    "a reason that is not UTF-8": (closing(1000, b"\xff"), CloseCode.INVALID_DATA),
    "2^40 bytes": (b"\x82\xff" + struct.pack("!Q", 1 << 40), CloseCode.MESSAGE_TOO_BIG),
    "2^64 - 1 bytes": (b"\x82\xff" + b"\xff" * 8, CloseCode.MESSAGE_TOO_BIG),
    "a byte too many": (b"\x82\xff" + struct.pack("!Q", MAX_MESSAGE_BYTES + 1), CloseCode.MESSAGE_TOO_BIG),
    "a ping of a megabyte": (b"\x89\xff" + struct.pack("!Q", 1 << 20), CloseCode.MESSAGE_TOO_BIG),
    "a close with a code": (closing(4321, b"enough"), 4321),
    "a close without a code": (frame(0x88), CloseCode.NORMAL_CLOSURE),
    "frames after a close": (frame(0x88) + frame(0xFF) * 10, CloseCode.NORMAL_CLOSURE),
}


@pytest.mark.parametrize("what", ENDS)
def test_the_websocket_ends_with_its_code(run: Any, what: str) -> None:
    wire, code = ENDS[what]

    async def ended(pieces: list[bytes]) -> None:
        async with relayed() as (user, client):
            await user.raw(masked(b"first", Opcode.PING))
            assert await user.next() == Frame(Opcode.PONG, b"first")
            for piece in pieces:
                client._receive(piece)
            closed = await user.next()
            assert isinstance(closed, Close) and closed.code == code
            assert await user.next() is None

    run(ended([wire]))
    run(ended([wire[at : at + 1] for at in range(len(wire))]))


@pytest.mark.parametrize(
    "wire",
    [b"\x82", b"\x82\x85\x01", frame(0x82, b"abcde")[:-1], frame(0x8A, b"not asked for")],
    ids=["one byte", "half a head", "a frame but for its end", "a pong"],  # each process masks with other bytes
)
def test_what_is_not_whole_or_asks_for_nothing_is_not_answered(run: Any, wire: bytes) -> None:
    async def work() -> None:
        async with relayed() as (user, client):
            client._receive(wire)
            assert not client._ending and not client.outgoing.frames

    run(work())


def test_a_long_reason_is_cut_at_a_character(run: Any) -> None:
    async def work() -> None:
        async with relayed() as (user, client):
            client.end(CloseCode.POLICY_VIOLATION, Reason.REFUSED, "é" * 200)
            assert isinstance(await user.next(), Closed)
            assert await user.next() == Close(CloseCode.POLICY_VIOLATION, "é" * 61)

    run(work())


def test_pings_are_answered_between_fragments(run: Any) -> None:
    async def work() -> None:
        async with target(echo) as there, relayed() as (user, _):
            await opened(user, 1, there)
            message = user.connection.data(1, 6) + b"halves"
            first, rest = masked(message[:9]), masked(message[9:], Opcode.CONT)
            first = bytes((first[0] & 0x7F,)) + first[1:]
            await user.raw(first + frame(0x00) * 1000 + masked(b"there?", Opcode.PING) + rest)
            assert await user.next() == Frame(Opcode.PONG, b"there?")
            assert await user.receive(1, 6) == b"halves"

    run(work())


def test_a_client_that_leaves_in_the_middle_of_a_frame_takes_its_streams_along(run: Any) -> None:
    async def work() -> None:
        left = asyncio.Event()

        async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.read() == b"whole"
            left.set()

        async with target(waits) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.send(1, b"whole")
            await user.raw(masked(user.connection.data(1, 100) + bytes(100))[:50])
            user.sock.close()
            await left.wait()
            assert client.streams == 0

    run(work())
