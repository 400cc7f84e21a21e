"""A bridge as its clients see it: who gets the device, and what the others are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from fastflight.bridge import Ports, clients
from fastflight.bridge import bridge as bridges
from fastflight.errors import ProtocolError, TransportError
from fastflight.transport import LineSettings
from tests.bridge.bridge_client import (
    KINDS,
    RESUME,
    SET_BAUD_9600,
    SUSPEND,
    BridgeClient,
    bridging,
    connect,
    refused,
    seen,
    writing,
)
from tests.bridge.memory_line import MemoryControl, MemoryLine, bridged


@pytest.mark.parametrize("kind", KINDS)
async def test_every_byte_crosses_unchanged_in_segments_of_any_size(kind: str) -> None:
    chance = random.Random(1)
    sent = b"".join(
        chance.choice([chance.randbytes(chance.randrange(1, 90_000)), b"\xff" * 5000, b"\r\n\x00\xff\xfa" * 999])
        for _ in range(100)
    )

    async with bridging() as (line, bridge):
        client = await connect(bridge, kind)

        async def send() -> None:
            at = 0
            while at < len(sent):
                size = chance.choice([1, 2, 255, chance.randrange(1, 200_000)])
                await client.send(sent[at : at + size])
                at += size

        sending = asyncio.create_task(send())
        assert await client.exactly(len(sent)) == sent
        await sending
        assert line.written == sent
        await client.close()


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
async def test_a_second_writer_is_told_at_once_who_has_the_device(first: str, second: str) -> None:
    async with bridging() as (line, bridge):
        holder = await writing(bridge, first)
        late = await connect(bridge, second)
        await late.send(b"is not read by anybody")
        kind = {"socket": "raw socket", "rfc2217": "RFC 2217"}[first]
        told = (await late.rest()).decode()
        assert told.startswith(f"fastflight: board: in use by {holder.name} ({kind}) for ")
        assert told.endswith("\r\n")
        assert told.count("\n") == 1
        assert line.written == b"hello"
        await late.close()
        await holder.send(b"!")
        assert await holder.exactly(1) == b"!"
        await holder.close()


async def test_a_port_that_breaks_its_protocol_ends_its_writer_with_the_reason() -> None:
    class Flooded(MemoryControl):
        """A remote port that floods instead of answering."""

        async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
            raise ProtocolError("the server sent 16777217 bytes, and no answer", where="rfc2217://far:1")

    async with bridging(MemoryLine(control=Flooded())) as (line, bridge):
        client = await writing(bridge, "rfc2217")
        client.writer.write(SET_BAUD_9600)
        assert b"16777217 bytes, and no answer" in await client.rest()
        await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_that_connects_again_at_once_is_let_in(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "LEAVING_SECONDS", 30.0)  # what putting things back takes is the machine's affair

    class Slow(MemoryControl):
        """Takes its time to put things back."""

        async def aassign(self, timeout: float, **lines: bool | None) -> None:
            for _ in range(200):
                await asyncio.sleep(0)

    async with bridging(MemoryLine(control=Slow())) as (line, bridge):
        for _ in range(5):
            client = await writing(bridge, kind)
            client.writer.transport.abort()  # gone before the bridge has heard of it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leave", [BridgeClient.close, BridgeClient.reset])
async def test_the_device_is_free_when_its_writer_has_gone(
    leave: Callable[[BridgeClient], Awaitable[None]], kind: str
) -> None:
    async with bridging() as (line, bridge):
        await leave(await writing(bridge, kind))
        while (client := await connect(bridge, "socket")) and await refused(client):
            await client.close()
        await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_client_sent_before_it_left_reaches_the_device(kind: str) -> None:
    size = 2_000_000

    async with bridging(MemoryLine(answer=lambda data: b"")) as (line, bridge):
        client = await connect(bridge, kind)
        await client.send(b"x" * size)
        client.writer.write_eof()
        while len(line.written) < size:
            await line.wrote()
        await client.reader.read()
        await client.close()


async def test_with_takeover_the_newest_writer_gets_the_device_and_the_old_one_is_told() -> None:
    async with bridging(takeover=True) as (line, bridge):
        old = await writing(bridge, "rfc2217")
        new = await writing(bridge, "socket")
        assert (await old.rest()).decode() == f"\r\nfastflight: {new.name} (raw socket) took the device over\r\n"
        await old.close()
        await new.close()


async def test_of_many_that_take_over_at_the_same_time_one_has_the_device_and_the_others_end() -> None:
    async with bridging(takeover=True) as (line, bridge):
        clients = await asyncio.gather(*(connect(bridge, KINDS[number % 2]) for number in range(20)))
        pending = {asyncio.ensure_future(client.rest()) for client in clients}
        while len(pending) > 1:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            assert all(b"took the device over" in told.result() for told in done)
        newest = await writing(bridge, "socket")
        assert f"{newest.name} (raw socket) took the device over".encode() in await pending.pop()
        for client in (*clients, newest):
            await client.close()


async def test_viewers_see_what_the_device_says_and_are_not_heard() -> None:
    async with bridging() as (line, bridge):
        viewers = [await connect(bridge, "viewers") for _ in range(3)]
        for viewer in viewers:
            await viewer.send(b"ignored")
        for number, viewer in enumerate(viewers):
            await seen(line, viewer, b"[%d]" % number)
        writer = await writing(bridge, "rfc2217")
        await writer.send(b"\xff done")
        for viewer in viewers:
            await viewer.read_until(b"hello\xff done")
        assert line.written == b"hello\xff done"
        for client in (writer, *viewers):
            await client.close()


async def test_a_viewer_that_will_send_nothing_still_sees_what_the_device_says() -> None:
    async with bridging() as (line, bridge):
        viewer = await connect(bridge, "viewers")
        viewer.writer.write_eof()  # as `nc host port </dev/null` does
        await seen(line, viewer, b"ready")
        for _ in range(10):
            await asyncio.sleep(0)
        line.say(b"and more")
        await viewer.read_until(b"and more")
        await bridge.aclose()
        assert await viewer.rest() == b"\r\nfastflight: the bridge is closing\r\n"
        await viewer.close()


async def test_a_writer_that_suspends_the_flow_and_never_resumes_it_is_told_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "SUSPENDED_SECONDS", 0.05)

    async with bridging() as (line, bridge):
        client = await writing(bridge, "rfc2217")
        client.writer.write(SUSPEND + RESUME)
        client.writer.write(SUSPEND)
        assert await client.rest() == b"\r\nfastflight: the flow was suspended for 0.05 s and not resumed\r\n"
        await client.close()
        while (other := await connect(bridge, "socket")) and await refused(other):
            await other.close()
        assert not line.paused
        await other.close()


async def test_a_tool_at_work_goes_on_while_a_bridge_drains_and_no_other_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "QUIET_SECONDS", 3600.0)

    async with bridging() as (line, bridge):
        tool = await writing(bridge, "socket")
        draining = asyncio.ensure_future(bridge.drain(3600.0))
        await asyncio.sleep(0)
        late = await connect(bridge, "rfc2217")
        assert (await late.rest()).endswith(b"fastflight: the bridge is closing\r\n")
        await late.close()
        await tool.send(b"more")
        assert await tool.exactly(4) == b"more"
        assert not draining.done()
        await tool.close()
        await draining


async def test_a_tool_that_is_quiet_keeps_no_bridge_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "QUIET_SECONDS", 0.0)

    async with bridging() as (line, bridge):
        tool = await writing(bridge, "socket")
        await bridge.drain(3600.0)
        await bridge.aclose()
        assert await tool.rest() == b"\r\nfastflight: the bridge is closing\r\n"
        await tool.close()


async def test_a_tool_that_does_not_come_to_its_end_has_the_time_of_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "QUIET_SECONDS", 3600.0)

    async with bridging() as (line, bridge):
        tool = await writing(bridge, "socket")
        await bridge.drain(0.01)
        await tool.close()


async def test_viewers_beyond_the_limit_are_told() -> None:
    async with bridging(max_viewers=1) as (line, bridge):
        first = await connect(bridge, "viewers")
        await seen(line, first, b"x")
        second = await connect(bridge, "viewers")
        assert await second.rest() == b"fastflight: all 1 places for viewers are taken\r\n"
        await second.close()
        await first.close()


async def test_a_viewer_that_may_have_gone_gives_its_place_to_the_next() -> None:
    """Of a device that is silent nobody learns whether it is still there."""

    async with bridging(max_viewers=1) as (line, bridge):
        first = await connect(bridge, "viewers")
        await seen(line, first, b"x")
        first.writer.write_eof()
        second = await connect(bridge, "viewers")
        await seen(line, second, b"y")
        assert b"fastflight: another viewer got this place\r\n" in await first.rest()
        third = await connect(bridge, "viewers")
        assert await third.rest() == b"fastflight: all 1 places for viewers are taken\r\n"
        for client in (first, second, third):
            await client.close()


async def test_a_viewer_that_does_not_read_loses_a_part_and_the_writer_nothing() -> None:
    async with bridging() as (line, bridge):
        viewer = await connect(bridge, "viewers")
        await seen(line, viewer, b"ready")
        viewer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer = await writing(bridge, "socket")
        piece = b"0123456789abcdef" * 1024
        for _ in range(1500):  # beyond what the system, the bridge and the tap keep for the viewer
            await writer.send(piece)
            assert await writer.exactly(len(piece)) == piece
        viewer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await viewer.read_until(b"read too slowly: chunks ")
        await writer.close()
        viewer.writer.transport.abort()


async def test_when_the_device_is_lost_its_clients_are_told_and_the_bridge_lives_on() -> None:
    async with bridging() as (line, bridge):
        viewer = await connect(bridge, "viewers")
        await seen(line, viewer, b"ready")
        writer = await writing(bridge, "socket")
        line.lose("unplugged")
        assert await writer.rest() == b"\r\nfastflight: unplugged\r\n"
        await viewer.read_until(b"\r\nfastflight: the device is lost: unplugged\r\n")
        refused = await connect(bridge, "socket")
        assert await refused.rest() == b"fastflight: board: unplugged\r\n"
        line.lose("")
        await viewer.read_until(b"\r\nfastflight: the device is open\r\n")
        for client in (writer, refused, await writing(bridge, "rfc2217"), viewer):
            await client.close()


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_one_whose_closing_is_cancelled_is_closed_all_the_same(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "CLOSE_SECONDS", 0.01)

    async with bridging() as (line, bridge):
        tool = await writing(bridge, "socket")
        viewer = await connect(bridge, "viewers")
        closing = asyncio.create_task(bridge.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nobody has the line, and nobody reads it
        for port in (bridge.ports.rfc2217, bridge.ports.socket, bridge.ports.viewers):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        for client in (tool, viewer):
            await client.close()


async def test_a_port_is_taken_once() -> None:
    async with bridging() as (line, bridge):
        with pytest.raises(TransportError, match="choose another one"):
            async with bridged(MemoryLine(), Ports(rfc2217=0, socket=bridge.ports.socket)):
                pass
