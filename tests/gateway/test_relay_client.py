"""Streams over the relay: both ends of both directions, targets, taps, and what the log says."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.frames import Close, CloseCode

from fastflight.gateway.relay.client import RelayClient
from fastflight.gateway.relay.outgoing import unpaced
from fastflight.protocol.relay import Closed, End, Reason, RelayData
from tests.support.chaos import ChaosProxy

from .relay_user import User, deaf, echo, flood, masked, opened, relayed, target


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
                if isinstance(event, RelayData):
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


def test_a_target_that_is_cut_right_behind_its_last_bytes_is_told(run: Any) -> None:
    """uvloop says nothing of such a reset: whoever has the client sees to its targets now and then."""

    async def looking(client: RelayClient) -> None:
        while True:
            await asyncio.sleep(0)
            client.look_again()

    async def work() -> None:
        async with target(flood) as there:
            with ChaosProxy("127.0.0.1", int(there.rpartition(":")[2]), ["cut:back@91243"]) as proxy:
                async with relayed() as (user, client):
                    await opened(user, 1, f"127.0.0.1:{proxy.port}")
                    seeing = asyncio.ensure_future(looking(client))
                    came = 0
                    while isinstance(event := await user.next(), RelayData):
                        came += len(event.data)
                        if given := user.connection.consumed(1, len(event.data)):
                            await user.say(given)
                    seeing.cancel()
                    assert isinstance(event, Closed)
                    assert event.reason == Reason.RESET
                    assert came <= 91243

    run(work())


def test_a_client_that_cuts_right_behind_its_last_bytes_is_gone(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            await user.say(user.connection.open(2, there))
            await asyncio.get_running_loop().sock_recv(user.sock, 1)  # what is left of the answer makes closing a cut
            user.sock.send(masked(user.connection.data(1, 1) + b"!"))
            user.sock.close()
            while client.streams:
                await asyncio.sleep(0)
                client.look_again()

    run(work())


def test_a_target_that_is_not_allowed_or_not_there_is_refused_with_the_reason(run: Any) -> None:
    async def work() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))  # nobody else has the port, and nobody listens on it
            gone = f"127.0.0.1:{holder.getsockname()[1]}"
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


def test_the_end_of_the_relay_is_told_with_streams_open(run: Any) -> None:
    async def work() -> None:
        async with target(deaf) as there, relayed() as (user, client):
            await opened(user, 1, there)
            client.end(CloseCode.GOING_AWAY, Reason.SHUTDOWN, "the gateway shuts down")
            assert await user.next() == Closed(0, Reason.SHUTDOWN, "the gateway shuts down")
            assert isinstance(await user.next(), Close)
            assert await user.next() is None

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
    assert last["received"].startswith("250000B in ") and last["received"].endswith(" reads)")


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
