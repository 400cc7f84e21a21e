"""A bridge as its clients see it: that nobody can hang it, and how it closes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
from collections.abc import Iterator

import pytest

from fastflight.bridge import Bridge, DeviceFront, Ports
from fastflight.bridge import connection as connections
from fastflight.bridge import control as controls
from fastflight.concurrency import Shard
from fastflight.concurrency.shard import LOOPS, asyncio_loop
from fastflight.device import Device
from fastflight.transport import parse_url
from tests.bridge.bridge_client import KINDS, BridgeClient, bridging, connect, refused, seen, writing
from tests.bridge.memory_line import MemoryControl, MemoryLine, bridged


@pytest.mark.parametrize(("clients", "loop"), [(48, "asyncio"), (500, "uvloop")])
def test_many_connect_at_once_and_each_gets_the_device_or_a_word(clients: int, loop: str) -> None:
    async def test() -> None:
        async with bridging() as (_, bridge):
            holder = await writing(bridge, "socket")
            opened = await asyncio.gather(*(connect(bridge, KINDS[number % 2]) for number in range(clients)))
            for told in await asyncio.gather(*(client.rest() for client in opened)):
                assert f"in use by {holder.name}".encode() in told
            await asyncio.gather(*(client.close() for client in opened))
            await holder.send(b"still here")
            assert await holder.exactly(10) == b"still here"
            await holder.close()

    with descriptors(2048), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())


@contextlib.contextmanager
def descriptors(number: int) -> Iterator[None]:
    """Let this process, which is bridge and clients at the same time, open as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(number, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_beyond_the_limit_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.bridge.bridge.MAX_CONNECTIONS", 2)

    async with bridging() as (line, bridge):
        holder = await writing(bridge, "socket")
        waiting = await connect(bridge, "viewers")
        await seen(line, waiting, b"x")
        surplus = await connect(bridge, "socket")
        assert await surplus.rest() == b"fastflight: too many connections\r\n"
        for client in (surplus, waiting, holder):
            await client.close()


async def test_a_client_that_never_negotiates_keeps_nobody_waiting() -> None:
    async with bridging() as (line, bridge):
        reader, writer = await asyncio.open_connection("127.0.0.1", bridge.ports.rfc2217)
        assert (await reader.read(3))[:1] == b"\xff"
        late = await connect(bridge, "socket")
        assert b"in use by" in await late.rest()
        await late.close()
        writer.write(b"plain")
        assert (await reader.readuntil(b"plain")).endswith(b"plain")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "flood",
    [
        b"\xff\xfd\x63" * 50_000,  # DO 99
        b"\xff\xfb\x2c\xff\xfc\x2c" * 25_000,  # WILL and WONT COM-PORT
        b"\xff\xf1" * 75_000,  # NOP
        b"\xff\xfa\x2c\x00\xff\xf0" * 12_500,  # whose answer is longer than the question
    ],
    ids=["do", "will-wont", "nop", "signature"],
)
async def test_a_flood_of_commands_ends_and_the_data_after_it_arrive(flood: bytes) -> None:
    async with bridging() as (line, bridge):
        client = await writing(bridge, "rfc2217")
        client.writer.write(flood)
        await client.send(b"after")
        assert await client.exactly(5) == b"after"
        await client.close()


async def test_a_subnegotiation_without_end_is_neither_kept_nor_passed_on() -> None:
    async with bridging() as (line, bridge):
        client = await writing(bridge, "rfc2217")
        client.writer.write(b"\xff\xfa\x2c" + b"x" * 5_000_000)
        client.writer.write(b"\xff\xf0")
        await client.send(b"after")
        assert await client.exactly(5) == b"after"
        assert line.written == b"helloafter"
        await client.close()


async def test_a_break_in_mid_transfer_reaches_the_line_and_no_byte_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "BREAK_SECONDS", 0.0)
    control = MemoryControl()

    async with bridging(MemoryLine(control=control)) as (line, bridge):
        client = await writing(bridge, "rfc2217")
        sent = bytes(range(255)) * 2000
        client.writer.write(sent + b"\xff\xf3" + sent)
        assert await client.exactly(2 * len(sent)) == 2 * sent
        assert line.written == b"hello" + 2 * sent
        assert [told for told in control.told if "break" in told] == [{"break": True}, {"break": False}]
        await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_in_mid_transfer_frees_the_device(kind: str) -> None:
    async with bridging() as (line, bridge):
        client = await connect(bridge, kind)
        client.writer.write(b"x" * 3_000_000)
        await client.exactly(1)
        await client.reset()
        while (client := await connect(bridge, kind)) and await refused(client):
            await client.close()
        await client.close()


async def test_a_writer_that_reads_nothing_is_dropped_and_holds_back_the_device_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.05)

    async with bridging() as (line, bridge):
        client = await writing(bridge, "socket")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not line.paused:
            line.say(b"x" * 65536)
            await asyncio.sleep(0)
        while (other := await connect(bridge, "socket")) and await refused(other):
            await other.close()
        await other.close()
        client.writer.transport.abort()


async def test_closing_under_load_ends_everybody() -> None:
    async with bridging() as (line, bridge):
        viewers = [await connect(bridge, "viewers") for _ in range(3)]
        writer = await writing(bridge, "socket")
        late = [await connect(bridge, "rfc2217") for _ in range(3)]
        flooding = asyncio.create_task(_flood(writer))
        await writer.exactly(1_000_000)
        await bridge.aclose()
        await flooding
        for client in (writer, *viewers, *late):
            with contextlib.suppress(ConnectionError):  # what it had not read yet
                await client.reader.read()
            client.writer.transport.abort()


@pytest.mark.parametrize("turns", range(5))
async def test_closing_while_a_crowd_comes_in_leaves_no_connection_open(turns: int) -> None:
    with contextlib.ExitStack() as crowd:
        async with bridged(MemoryLine()) as bridge:
            for port in (bridge.ports.rfc2217, bridge.ports.socket, bridge.ports.viewers):
                for _ in range(50):  # the system connects them; the loop has not seen them yet
                    crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(turns):
                await asyncio.sleep(0)
        gc.collect()  # a socket that was dropped complains


@pytest.mark.parametrize("takeover", [False, True])
async def test_closing_gives_the_device_to_nobody_any_more_and_everybody_a_word(takeover: bool) -> None:
    async with bridging(takeover=takeover) as (line, bridge):
        holder = await writing(bridge, "socket")
        with contextlib.ExitStack() as crowd:
            port = bridge.ports.socket
            late = [crowd.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
            for _ in range(1000):
                if len(bridge._tasks) > 1:  # the first of them has been accepted just now
                    break
                await asyncio.sleep(0)
            await bridge.aclose()
            told = late[0].recv(1000)
            assert any(words in told for words in (b"in use by", b"is closing", b"took the device over"))
        await holder.rest()
        await holder.close()


def test_idle_sessions_wake_nobody_up() -> None:
    async def main(front: DeviceFront, device: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with Bridge(front, Ports(rfc2217=0, socket=0, viewers=0)) as bridge:
            board, _ = await loop.sock_accept(device)
            clients = [await connect(bridge, kind) for kind in ("viewers", "rfc2217")]
            clients[1].writer.write(b"\xff\xfb\x2c")  # it speaks RFC 2217
            await clients[1].reader.readuntil(b"\xff\xfa\x2c")  # and was told the modem lines
            soon = loop.time() + 600
            timers = loop._scheduled  # type: ignore[attr-defined]
            assert [timer for timer in timers if timer.when() < soon and not timer.cancelled()] == []
            for client in clients:
                client.writer.transport.abort()
        board.close()

    shard = Shard("bridge", asyncio_loop)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"socket://127.0.0.1:{listener.getsockname()[1]}"
        with contextlib.closing(Device("board", parse_url(url), shard=shard)) as device, shard:
            shard.submit(main(DeviceFront(device), listener)).result(60)


async def _flood(client: BridgeClient) -> None:
    try:
        while True:
            await client.send(b"x" * 65536)
    except ConnectionError:
        pass
