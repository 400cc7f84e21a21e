"""Streams over the relay: both ends of both directions, clients and targets that do not keep up, and rules broken."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from fastflight.gateway.relay_client import (
    DATA_FRAMES,
    MAX_CONNECTING,
    MAX_QUEUED_FRAMES,
    OPENS_AT_ONCE,
    OPENS_PER_SECOND,
    QUEUED_BYTES,
)
from fastflight.gateway.relay_outgoing import unpaced
from fastflight.protocol import relay
from fastflight.protocol.relay import MAX_STREAMS, WINDOW_BYTES, Closed, Data, End, FrameType, Reason
from fastflight.protocol.websocket import Close, CloseCode, Opcode, Pong
from fastflight.transport.tap import Tap

from .relaying import LOCAL, User, deaf, echo, flood, masked, opened, relayed, target

SOON = 20.0


@pytest.fixture(scope="module", autouse=True)
def _uvloop_has_run() -> None:
    """It takes a pipe for signals, once for the life of the process: no test is to be blamed for it."""
    uvloop.run(asyncio.sleep(0))


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Any:
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture
def run(loops: Any) -> Any:
    def run_(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(asyncio.wait_for(work, SOON))

    return run_


async def spun(condition: Any) -> None:
    """Let the loop turn until `condition`."""
    while not condition():  # noqa: ASYNC110  # what is waited for is told to nobody
        await asyncio.sleep(0)


def test_bytes_go_there_and_back_and_both_ends_are_passed_on(run: Any) -> None:
    async def work() -> None:
        async with target(echo) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.send(1, b"hello")
            assert await user.receive(1, 5) == b"hello"
            await user.say(user.connection.end(1))
            assert await user.receive(1) == b""
            assert await user.next() == Closed(1, Reason.DONE, "")
            assert client.streams == 0

    run(work())


def test_much_goes_both_ways_at_once_unchanged(run: Any) -> None:
    async def work() -> None:
        content = os.urandom(3_000_001)
        async with target(echo) as there, relayed(read_bytes=16_384) as (user, _):
            await opened(user, 7, there)
            found, rest = bytearray(), content
            while len(found) < len(content):
                if rest and (size := min(len(rest), user.connection.credit(7), 50_000)):
                    await user.say(user.connection.data(7, size) + rest[:size])
                    rest = rest[size:]
                    continue
                event = await user.next()
                if isinstance(event, Data):
                    found += event.data
                    if given := user.connection.consumed(7, len(event.data)):
                        await user.say(given)
            assert found == content
            await user.leave(7)

    run(work())


def test_streams_stand_side_by_side(run: Any) -> None:
    async def work() -> None:
        async with target(echo) as there, target(echo, "::1") as six, relayed() as (user, client):
            for stream in range(1, 11):
                await opened(user, stream, there if stream % 2 else six)
            for stream in range(1, 11):
                await user.send(stream, b"%d" % stream)
                assert await user.receive(stream, len(b"%d" % stream)) == b"%d" % stream
            assert client.streams == 10

    run(work())


def test_a_target_may_end_first_and_still_take_what_the_client_sends(run: Any) -> None:
    async def work() -> None:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"bye")
            writer.write_eof()
            heard.set_result(await reader.read())

        async with target(ends) as there, relayed() as (user, _):
            await opened(user, 1, there)
            assert await user.receive(1) == b"bye"
            await user.send(1, b"and yet")
            await user.say(user.connection.end(1))
            assert await heard == b"and yet"
            assert await user.next() == Closed(1, Reason.DONE, "")

    run(work())


def test_a_target_that_resets_is_told_with_its_reason(run: Any) -> None:
    async def work() -> None:
        async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async with target(resets) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.send(1, b"x")
            assert await user.next() == Closed(1, Reason.RESET, f"{there}: connection reset by peer")
            assert client.streams == 0

    run(work())


def test_a_target_that_is_not_allowed_or_not_there_is_refused_with_the_reason(run: Any) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = f"127.0.0.1:{listener.getsockname()[1]}"
        async with relayed(gone) as (user, client):
            refused = await user.open(1, "127.0.0.1:1")
            assert isinstance(refused, Closed) and refused.reason == Reason.REFUSED
            assert "--relay-allow" in refused.text
            assert await user.open(2, gone) == Closed(2, Reason.UNREACHABLE, f"{gone}: connection refused")
            assert client.streams == 0

    run(work())


def test_a_target_that_does_not_answer_is_given_up(run: Any) -> None:
    async def work() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            taken = [socket.socket() for _ in range(4)]
            for sock in taken:
                sock.setblocking(False)
                sock.connect_ex(address)
            async with relayed(connect_timeout=0.05) as (user, _):
                answer = await user.open(1, f"127.0.0.1:{address[1]}")
                assert isinstance(answer, Closed) and answer.reason == Reason.TIMEOUT
            for sock in taken:
                sock.close()

    run(work())


def test_a_client_that_gives_no_credit_stops_its_target_and_nothing_else(run: Any) -> None:
    async def work() -> None:
        async with target(flood) as much, target(echo) as there, relayed(window=1000) as (user, client):
            await opened(user, 1, much)
            came = 0
            while came < 1000:
                event = await user.next()
                assert isinstance(event, Data) and event.stream == 1
                came += len(event.data)
            await opened(user, 2, there)
            await user.send(2, b"still here")
            assert await user.receive(2, 10) == b"still here"
            assert client.outgoing.size == 0
            await user.say(user.connection.consumed(1, 1000))
            assert isinstance(await user.next(), Data)

    run(work())


def test_a_client_that_stops_reading_costs_a_bounded_queue_and_harms_nobody(run: Any) -> None:
    async def work() -> None:
        async with target(flood) as much, target(echo) as there, relayed(window=1 << 30) as (user, client):
            for stream in range(1, 21):
                await user.say(user.connection.open(stream, much))
            await spun(lambda: not client.has_room)
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
                if isinstance(event, Data):
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
            await spun(lambda: client.outgoing.frames > 3)
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
                found += event.data if isinstance(event, Data) else b""
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
            await spun(lambda: client.streams == MAX_STREAMS - 1)
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
            await spun(lambda: client.streams == MAX_CONNECTING - 1)
            await opened(user, MAX_CONNECTING + 2, there)

    run(work())


def test_streams_are_opened_so_often_and_no_oftener(run: Any) -> None:
    async def work() -> None:
        now = 0.0
        async with target(echo) as there, relayed(clock=lambda: now) as (user, client):
            for number in range(1, OPENS_AT_ONCE + 1):
                await opened(user, number, there)
                await user.say(user.connection.close(number))
                await spun(lambda: not client.streams)
            refused = await user.open(1000, there)
            assert isinstance(refused, Closed) and refused.reason == Reason.LIMIT
            assert refused.text == f"more than {OPENS_PER_SECOND} streams a second: wait"
            now = 1 / OPENS_PER_SECOND
            await opened(user, 1001, there)

    run(work())


def test_a_name_that_means_something_else_a_moment_later_still_leads_where_was_judged(run: Any) -> None:
    async def work() -> None:
        asked: list[str] = []

        async def changing(name: str) -> list[str]:
            asked.append(name)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

        async def says_where(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(writer.get_extra_info("sockname")[0].encode())
            await reader.read()

        async with target(says_where) as there, relayed("127.0.0.1:*", lookup=changing) as (user, _):
            port = there.rpartition(":")[2]
            await opened(user, 1, f"board.example:{port}")
            assert await user.receive(1, 9) == b"127.0.0.1" and asked == ["board.example"]
            refused = await user.open(2, f"board.example:{port}")
            assert isinstance(refused, Closed) and refused.reason == Reason.REFUSED

    run(work())


def test_a_target_that_says_to_go_elsewhere_has_only_said_so(run: Any) -> None:
    async def work() -> None:
        went: list[str] = []

        async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            went.append("there")

        async with target(elsewhere) as other:
            said = f"HTTP/1.1 301 Moved Permanently\r\nLocation: http://{other}/\r\n\r\n".encode()

            async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(said)

            async with target(redirects) as there, relayed() as (user, _):
                await opened(user, 1, there)
                assert await user.receive(1) == said
        assert went == []

    run(work())


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system does not say how it paces")
def test_tcp_on_this_computer_is_not_paced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        unpaced(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
    with socket.socket() as apart:
        before = apart.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        unpaced(apart)  # no other end, so nothing is known of it
        assert apart.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) == before


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


def test_the_end_of_the_relay_is_told_with_streams_open(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            client.end(CloseCode.GOING_AWAY, Reason.SHUTDOWN, "the gateway shuts down")
            assert await user.next() == Closed(0, Reason.SHUTDOWN, "the gateway shuts down")
            assert isinstance(await user.next(), Close)
            assert await user.next() is None

    run(work())


def test_a_stream_can_be_tapped(run: Any) -> None:
    async def work() -> None:
        tap = Tap()
        async with target(echo) as there, target(echo) as other:
            taps = {"plc": tap}.get
            async with relayed(*LOCAL, taps=taps, devices={there: "plc", other: "another"}) as (user, _):
                # Whatever it is called by, it is the device's.
                for stream, name in (1, there), (2, there.replace("127.0.0.1", "localhost")), (3, other):
                    await opened(user, stream, name)
                    await user.send(stream, b"seen")
                    await user.receive(stream, 4)
                    await user.leave(stream)
            seen = [chunk[2:] for chunk in tap.reader(seq=0).rest()]
            cut = "another stream was opened"
            assert seen == [("tx", b"seen", ""), ("rx", b"seen", ""), ("tx", b"seen", cut), ("rx", b"seen", "")]

    run(work())


def test_a_stream_is_timed_every_100_reads_and_summed_up_in_one_line(run: Any) -> None:
    async def work() -> None:
        async def sends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(250_000))
            writer.write_eof()
            await reader.read()

        async with target(sends) as there, relayed(read_bytes=1000, timing=True) as (user, _):
            await opened(user, 1, there)
            assert len(await user.receive(1)) == 250_000
            await user.leave(1)

    with capture_logs() as logs:
        run(work())
    lots = [line for line in logs if line["log_level"] == "debug"]
    assert len(lots) >= 2
    assert {"read_us", "pack_us", "send_us", "bytes", "total", "reads"} <= set(lots[0])
    (last,) = [line for line in logs if line["event"] == "relayed"]
    assert last["received"].startswith("0.238419MB in ") and last["received"].endswith(" reads)")


def test_a_user_sees_the_end_of_a_stream_once(run: Any) -> None:
    async def work() -> None:
        async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            return None

        async with target(bye) as there, relayed() as (user, _):
            await opened(user, 1, there)
            assert await user.next() == End(1)
            await user.leave(1)
            assert isinstance(user, User)

    run(work())
