"""Clients and targets of the relay that do not keep up, and what they may have of it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from websockets.frames import Opcode

from fastflight.gateway.relay.client import (
    DATA_FRAMES,
    MAX_CONNECTING,
    MAX_QUEUED_FRAMES,
    OPENS_AT_ONCE,
    OPENS_PER_SECOND,
    QUEUED_BYTES,
)
from fastflight.protocol.relay import MAX_STREAMS, WINDOW_BYTES, Closed, Reason, RelayData
from tests.support.waiting import auntil

from .relay_user import LOCAL, deaf, echo, flood, masked, opened, relayed, target


def test_a_client_that_gives_no_credit_stops_its_target_and_nothing_else(run: Any) -> None:
    async def work() -> None:
        async with target(flood) as much, target(echo) as there, relayed(window=1000) as (user, client):
            await opened(user, 1, much)
            came = 0
            while came < 1000:
                event = await user.next()
                assert isinstance(event, RelayData) and event.stream == 1
                came += len(event.data)
            await opened(user, 2, there)
            await user.send(2, b"still here")
            assert await user.receive(2, 10) == b"still here"
            assert client.outgoing.size == 0
            await user.say(user.connection.consumed(1, 1000))
            assert isinstance(await user.next(), RelayData)

    run(work())


def test_a_client_that_stops_reading_costs_a_bounded_queue_and_harms_nobody(run: Any) -> None:
    async def work() -> None:
        async with target(flood) as much, target(echo) as there, relayed(window=1 << 30) as (user, client):
            for stream in range(1, 21):
                await user.say(user.connection.open(stream, much))
            await auntil(lambda: not client.has_room)
            async with relayed() as (other, _):
                await opened(other, 1, there)
                for _ in range(50):
                    await other.send(1, bytes(30_000))
                    assert await other.receive(1, 30_000) == bytes(30_000)
            held = sum(len(frame.buffer or b"") for frame in client.outgoing._queue)
            assert client.outgoing.size <= QUEUED_BYTES + client.buffers.size
            assert held <= 2 * (QUEUED_BYTES + client.buffers.size)
            # It reads again: all goes on.
            seen = set()
            while len(seen) < 20:
                event = await user.next()
                if isinstance(event, RelayData):
                    seen.add(event.stream)

    run(work())


def test_small_reads_do_not_hold_a_whole_buffer_each(run: Any) -> None:
    async def work() -> None:
        async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(b"drip")
                await writer.drain()
                await asyncio.sleep(0)

        async with target(drips) as there, relayed(window=1 << 30) as (user, client):
            await user.say(user.connection.open(1, there))
            client._wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
            await auntil(lambda: client.outgoing.frames > 3)
            assert sum(frame.buffer is not None for frame in client.outgoing._queue) <= 1
            assert client.outgoing.frames <= DATA_FRAMES

    run(work())


def test_a_client_that_asks_and_never_reads_costs_a_bounded_queue(run: Any) -> None:
    async def work() -> None:
        async with relayed() as (user, client):
            client._wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
            client.outgoing.send(bytes(100_000))
            await user.raw(masked(b"?" * 125, Opcode.PING) * 20_000)
            assert client.outgoing.frames < MAX_QUEUED_FRAMES
            # As many answers as it may have: it is not heard until it reads.
            for _ in range(MAX_QUEUED_FRAMES):
                client.outgoing.send(b"answer")
            asking = asyncio.ensure_future(user.raw(masked(b"?" * 125, Opcode.PING) * 20_000))
            await asyncio.sleep(0)
            before = client.outgoing.frames
            async with target(echo) as there, relayed() as (other, _):
                await opened(other, 1, there)
                await other.send(1, bytes(100_000))
                assert await other.receive(1, 100_000) == bytes(100_000)
            assert client.outgoing.frames <= before + 1 and not asking.done()
            asking.cancel()
            await asyncio.wait([asking])

    run(work())


def test_a_target_that_takes_nothing_holds_a_window_and_harms_nobody(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as slow, target(echo) as there, relayed() as (user, client):
            await opened(user, 1, slow)
            sent = 0
            await opened(user, 2, there)
            # The system's own buffers take some of it; credit for that comes back.
            while size := min(60_000, user.connection.credit(1)):
                await user.say(user.connection.data(1, size) + bytes(size))
                sent += size
                await user.send(2, b"still here")
                assert await user.receive(2, 10) == b"still here"
            assert len(client._streams[1]._unsent) <= WINDOW_BYTES
            await user.say(user.connection.close(1))
            await user.send(2, b"and here")
            found = b""
            while len(found) < 8:
                event = await user.next()
                found += event.data if isinstance(event, RelayData) else b""
            assert found == b"and here"
            assert client.streams == 1

    run(work())


def test_more_streams_than_a_connection_has_are_refused(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            for stream in range(1, MAX_STREAMS + 1):
                await opened(user, stream, there)
            last = await user.open(MAX_STREAMS + 1, there)
            assert isinstance(last, Closed) and last.reason == Reason.LIMIT
            await user.say(user.connection.close(MAX_STREAMS + 1))
            await user.say(user.connection.close(1))
            await auntil(lambda: client.streams == MAX_STREAMS - 1)
            await opened(user, MAX_STREAMS + 2, there)

    run(work())


def test_a_flood_of_opens_ends_the_connection(run: Any) -> None:
    async def work() -> None:
        async with relayed() as (user, client):
            await user.say(b"".join(user.connection.open(number, "127.0.0.1:x") for number in range(1, 2000)))
            while not isinstance(event := await user.next(), Closed) or event.stream:
                assert event is not None
            assert event.reason == Reason.VIOLATION
            assert client.streams == 0

    run(work())


def test_targets_that_do_not_answer_are_waited_for_in_bounded_number(run: Any) -> None:
    async def work() -> None:
        async def silent(name: str) -> list[str]:
            await asyncio.Event().wait()
            raise AssertionError

        async with target(echo) as there, relayed(*LOCAL, lookup=silent) as (user, client):
            for stream in range(1, MAX_CONNECTING + 1):
                await user.say(user.connection.open(stream, "slow.example:23"))
            refused = await user.open(MAX_CONNECTING + 1, there)
            assert isinstance(refused, Closed) and refused.reason == Reason.LIMIT
            assert refused.text == f"{MAX_CONNECTING} targets have not answered yet: wait for one"
            await user.say(user.connection.close(1))
            await auntil(lambda: client.streams == MAX_CONNECTING - 1)
            await opened(user, MAX_CONNECTING + 2, there)

    run(work())


def test_streams_are_opened_so_often_and_no_oftener(run: Any) -> None:
    async def work() -> None:
        now = 0.0
        async with target(echo) as there, relayed(clock=lambda: now) as (user, client):
            for number in range(1, OPENS_AT_ONCE + 1):
                await opened(user, number, there)
                await user.say(user.connection.close(number))
                await auntil(lambda: not client.streams)
            refused = await user.open(1000, there)
            assert isinstance(refused, Closed) and refused.reason == Reason.LIMIT
            assert refused.text == f"more than {OPENS_PER_SECOND} streams a second: wait"
            now = 1 / OPENS_PER_SECOND
            await opened(user, 1001, there)

    run(work())
