"""Rules of the relay's protocol and of WebSockets that a client breaks."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from fastflight.protocol import relay
from fastflight.protocol.relay import Closed, FrameType, Reason
from fastflight.protocol.websocket import Close, CloseCode, Opcode, Pong

from .relaying import deaf, echo, masked, opened, relayed, target


def test_a_byte_more_than_there_is_credit_for_ends_the_connection(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.open(2, "127.0.0.1:x")
            while size := min(60_000, user.connection.credit(1)):
                await user.say(user.connection.data(1, size) + bytes(size))
                # The answer to it is behind what credit there was: the system's own buffers took some.
                await user.say(b"", Opcode.PING)
                while not isinstance(await user.next(), Pong):
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


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (masked(b"hello", Opcode.TEXT), CloseCode.UNSUPPORTED_DATA),
        (b"\x82\x05hello", CloseCode.PROTOCOL_ERROR),
        (b"\x82\xff" + struct.pack("!Q", 1 << 40), CloseCode.MESSAGE_TOO_BIG),
        (masked(struct.pack("!H", 4321) + b"enough", Opcode.CLOSE), 4321),
        (masked(b"", Opcode.CLOSE), CloseCode.NORMAL),
    ],
)
def test_the_websocket_ends_with_its_code(run: Any, wire: bytes, code: int) -> None:
    async def work() -> None:
        async with relayed() as (user, _):
            await user.raw(wire)
            closed = await user.next()
            assert isinstance(closed, Close) and closed.code == code
            assert await user.next() is None

    run(work())


def test_pings_are_answered_between_fragments(run: Any) -> None:
    async def work() -> None:
        async with target(echo) as there, relayed() as (user, _):
            await opened(user, 1, there)
            message = user.connection.data(1, 6) + b"halves"
            first, rest = masked(message[:9]), masked(message[9:], Opcode.CONTINUATION)
            await user.raw(bytes((first[0] & 0x7F,)) + first[1:] + masked(b"there?", Opcode.PING) + rest)
            assert await user.next() == Pong(b"there?")
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
