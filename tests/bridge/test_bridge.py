"""A bridge as its clients see it: who gets the device, what the others are told, and that nobody can hang it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import resource
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

import pytest

from fastflight.bridge import Bridge, LineFront, Ports, State, Upstream
from fastflight.bridge import client as clients
from fastflight.bridge import connection as connections
from fastflight.bridge import control as controls
from fastflight.errors import TransportError
from fastflight.protocol.rfc2217_client import Rfc2217Client
from fastflight.transport import parse_url
from tests.bridge.memory_line import MemoryControl, MemoryLine, bridged

KINDS = ["socket", "rfc2217"]
SUSPEND, RESUME = b"\xff\xfa\x2c\x08\xff\xf0", b"\xff\xfa\x2c\x09\xff\xf0"

Test = Callable[[MemoryLine, Bridge], Awaitable[None]]


def run(test: Test, line: Callable[[], MemoryLine] = MemoryLine, **options: object) -> None:
    async def main() -> None:
        device = line()
        async with asyncio.timeout(60), bridged(device, **options) as bridge:
            await test(device, bridge)

    asyncio.run(main())


class Client:
    """A tool at one of the bridge's ports; on the RFC 2217 port, its data are unescaped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str) -> None:
        self.reader = reader
        self.writer = writer
        self._telnet = Rfc2217Client() if kind == "rfc2217" else None

    @property
    def name(self) -> str:
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    async def send(self, data: bytes) -> None:
        self.writer.write(data if self._telnet is None else self._telnet.take() + self._telnet.encode(data))
        await self.writer.drain()

    async def receive(self) -> bytes:
        """Some data; none at the end."""
        while data := await self.reader.read(1 << 18):
            if self._telnet is None:
                return data
            self._telnet.feed(data)
            self.writer.write(self._telnet.take())
            if plain := self._telnet.read():
                return plain
        return b""

    async def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := await self.receive()):
            data += more
        return data

    async def until(self, mark: bytes) -> None:
        data = b""
        while mark not in data:
            data = data[-len(mark) :] + (more := await self.receive())
            assert more, f"ended before {mark!r}"

    async def rest(self) -> bytes:
        data = b""
        while more := await self.receive():
            data += more
        return data

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def reset(self) -> None:
        """Go without a goodbye."""
        stream = self.writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def connect(bridge: Bridge, kind: str) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", getattr(bridge.ports, kind), limit=1 << 18)
    return Client(reader, writer, kind)


async def writing(bridge: Bridge, kind: str) -> Client:
    """A client that has the device, for certain: its echo came back."""
    client = await connect(bridge, kind)
    await client.send(b"hello")
    assert await client.exactly(5) == b"hello"
    return client


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_crosses_unchanged_in_segments_of_any_size(kind: str) -> None:
    chance = random.Random(1)
    sent = b"".join(
        chance.choice([chance.randbytes(chance.randrange(1, 90_000)), b"\xff" * 5000, b"\r\n\x00\xff\xfa" * 999])
        for _ in range(100)
    )

    async def test(line: MemoryLine, bridge: Bridge) -> None:
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

    run(test)


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_a_second_writer_is_told_at_once_who_has_the_device(first: str, second: str) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
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

    run(test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_connects_again_at_once_is_let_in(kind: str) -> None:
    class Slow(MemoryControl):
        """Takes its time to put things back."""

        async def aassign(self, timeout: float, **lines: bool | None) -> None:
            for _ in range(200):
                await asyncio.sleep(0)

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        for _ in range(5):
            client = await writing(bridge, kind)
            client.writer.transport.abort()  # gone before the bridge has heard of it

    run(test, lambda: MemoryLine(control=Slow()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leave", [Client.close, Client.reset])
def test_the_device_is_free_when_its_writer_has_gone(leave: Callable[[Client], Awaitable[None]], kind: str) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        await leave(await writing(bridge, kind))
        while (client := await connect(bridge, "socket")) and await _refused(client):
            await client.close()
        await client.close()

    run(test)


async def _refused(client: Client) -> bool:
    await client.send(b"?")
    answer = await client.exactly(1)
    return answer != b"?"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_sent_before_it_left_reaches_the_device(kind: str) -> None:
    size = 2_000_000

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await connect(bridge, kind)
        await client.send(b"x" * size)
        client.writer.write_eof()
        while len(line.written) < size:
            await line.wrote()
        await client.reader.read()
        await client.close()

    run(test, line=lambda: MemoryLine(answer=lambda data: b""))


def test_with_takeover_the_newest_writer_gets_the_device_and_the_old_one_is_told() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        old = await writing(bridge, "rfc2217")
        new = await writing(bridge, "socket")
        assert (await old.rest()).decode() == f"\r\nfastflight: {new.name} (raw socket) took the device over\r\n"
        await old.close()
        await new.close()

    run(test, takeover=True)


def test_of_many_that_take_over_at_the_same_time_one_has_the_device_and_the_others_end() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        clients = await asyncio.gather(*(connect(bridge, KINDS[number % 2]) for number in range(20)))
        pending = {asyncio.ensure_future(client.rest()) for client in clients}
        while len(pending) > 1:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            assert all(b"took the device over" in told.result() for told in done)
        newest = await writing(bridge, "socket")
        assert f"{newest.name} (raw socket) took the device over".encode() in await pending.pop()
        for client in (*clients, newest):
            await client.close()

    run(test, takeover=True)


@pytest.mark.parametrize("clients", [48, 500])
def test_many_connect_at_once_and_each_gets_the_device_or_a_word(clients: int) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        holder = await writing(bridge, "socket")
        opened = await asyncio.gather(*(connect(bridge, KINDS[number % 2]) for number in range(clients)))
        for told in await asyncio.gather(*(client.rest() for client in opened)):
            assert f"in use by {holder.name}".encode() in told
        await asyncio.gather(*(client.close() for client in opened))
        await holder.send(b"still here")
        assert await holder.exactly(10) == b"still here"
        await holder.close()

    with descriptors(2048):
        run(test)


@contextlib.contextmanager
def descriptors(number: int) -> Iterator[None]:
    """Let this process, which is bridge and clients at the same time, open as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(number, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_beyond_the_limit_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.bridge.bridge.MAX_CONNECTIONS", 2)

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        holder = await writing(bridge, "socket")
        waiting = await connect(bridge, "viewers")
        await _seen(line, waiting, b"x")
        surplus = await connect(bridge, "socket")
        assert await surplus.rest() == b"fastflight: too many connections\r\n"
        for client in (surplus, waiting, holder):
            await client.close()

    run(test)


def test_a_client_that_never_negotiates_keeps_nobody_waiting() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", bridge.ports.rfc2217)
        assert (await reader.read(3))[:1] == b"\xff"
        late = await connect(bridge, "socket")
        assert b"in use by" in await late.rest()
        await late.close()
        writer.write(b"plain")
        assert (await reader.readuntil(b"plain")).endswith(b"plain")
        writer.close()
        await writer.wait_closed()

    run(test)


@pytest.mark.parametrize(
    "flood",
    [
        b"\xff\xfd\x63" * 200_000,  # DO 99
        b"\xff\xfb\x2c\xff\xfc\x2c" * 100_000,  # WILL and WONT COM-PORT
        b"\xff\xf1" * 300_000,  # NOP
        b"\xff\xfa\x2c\x00\xff\xf0" * 50_000,  # whose answer is longer than the question
    ],
    ids=["do", "will-wont", "nop", "signature"],
)
def test_a_flood_of_commands_ends_and_the_data_after_it_arrive(flood: bytes) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await writing(bridge, "rfc2217")
        client.writer.write(flood)
        await client.send(b"after")
        assert await client.exactly(5) == b"after"
        await client.close()

    run(test)


def test_a_subnegotiation_without_end_is_neither_kept_nor_passed_on() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await writing(bridge, "rfc2217")
        client.writer.write(b"\xff\xfa\x2c" + b"x" * 5_000_000)
        client.writer.write(b"\xff\xf0")
        await client.send(b"after")
        assert await client.exactly(5) == b"after"
        assert line.written == b"helloafter"
        await client.close()

    run(test)


def test_a_break_in_mid_transfer_reaches_the_line_and_no_byte_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "BREAK_SECONDS", 0.0)
    control = MemoryControl()

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await writing(bridge, "rfc2217")
        sent = bytes(range(255)) * 2000
        client.writer.write(sent + b"\xff\xf3" + sent)
        assert await client.exactly(2 * len(sent)) == 2 * sent
        assert line.written == b"hello" + 2 * sent
        assert [told for told in control.told if "break" in told] == [{"break": True}, {"break": False}]
        await client.close()

    run(test, lambda: MemoryLine(control=control))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_in_mid_transfer_frees_the_device(kind: str) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await connect(bridge, kind)
        client.writer.write(b"x" * 3_000_000)
        await client.exactly(1)
        await client.reset()
        while (client := await connect(bridge, kind)) and await _refused(client):
            await client.close()
        await client.close()

    run(test)


def test_a_writer_that_reads_nothing_is_dropped_and_holds_back_the_device_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.05)

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await writing(bridge, "socket")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not line.paused:
            line.say(b"x" * 65536)
            await asyncio.sleep(0)
        while (other := await connect(bridge, "socket")) and await _refused(other):
            await other.close()
        await other.close()
        client.writer.transport.abort()

    run(test)


def test_viewers_see_what_the_device_says_and_are_not_heard() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        viewers = [await connect(bridge, "viewers") for _ in range(3)]
        for viewer in viewers:
            await viewer.send(b"ignored")
        for number, viewer in enumerate(viewers):
            await _seen(line, viewer, b"[%d]" % number)
        writer = await writing(bridge, "rfc2217")
        await writer.send(b"\xff done")
        for viewer in viewers:
            await viewer.until(b"hello\xff done")
        assert line.written == b"hello\xff done"
        for client in (writer, *viewers):
            await client.close()

    run(test)


def test_a_viewer_that_will_send_nothing_still_sees_what_the_device_says() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        viewer = await connect(bridge, "viewers")
        viewer.writer.write_eof()  # as `nc host port </dev/null` does
        await _seen(line, viewer, b"ready")
        for _ in range(10):
            await asyncio.sleep(0)
        line.say(b"and more")
        await viewer.until(b"and more")
        await bridge.aclose()
        assert await viewer.rest() == b"\r\nfastflight: the bridge is closing\r\n"
        await viewer.close()

    run(test)


def test_a_writer_that_suspends_the_flow_and_never_resumes_it_is_told_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SUSPENDED_SECONDS", 0.05)

    async def test(line: MemoryLine, bridge: Bridge) -> None:
        client = await writing(bridge, "rfc2217")
        client.writer.write(SUSPEND + RESUME)
        client.writer.write(SUSPEND)
        assert await client.rest() == b"\r\nfastflight: the flow was suspended for 0.05 s and not resumed\r\n"
        await client.close()
        while (other := await connect(bridge, "socket")) and await _refused(other):
            await other.close()
        assert not line.paused
        await other.close()

    run(test)


async def _seen(line: MemoryLine, viewer: Client, mark: bytes) -> None:
    """Wait until the viewer sees what the device says."""
    seen = asyncio.create_task(viewer.until(mark))
    while not seen.done():
        line.say(mark)
        await asyncio.sleep(0)


def test_viewers_beyond_the_limit_are_told() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        first = await connect(bridge, "viewers")
        await _seen(line, first, b"x")
        second = await connect(bridge, "viewers")
        assert await second.rest() == b"fastflight: all 1 places for viewers are taken\r\n"
        await second.close()
        await first.close()

    run(test, max_viewers=1)


def test_a_viewer_that_does_not_read_loses_a_part_and_the_writer_nothing() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        viewer = await connect(bridge, "viewers")
        await _seen(line, viewer, b"ready")
        viewer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer = await writing(bridge, "socket")
        piece = b"0123456789abcdef" * 1024
        for _ in range(1500):  # beyond what the system, the bridge and the tap keep for the viewer
            await writer.send(piece)
            assert await writer.exactly(len(piece)) == piece
        viewer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await viewer.until(b"read too slowly: chunks ")
        await writer.close()
        viewer.writer.transport.abort()

    run(test)


def test_when_the_device_is_lost_its_clients_are_told_and_the_bridge_lives_on() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        viewer = await connect(bridge, "viewers")
        await _seen(line, viewer, b"ready")
        writer = await writing(bridge, "socket")
        line.tell(State("lost", "unplugged"))
        assert await writer.rest() == b"\r\nfastflight: unplugged\r\n"
        await viewer.until(b"\r\nfastflight: the device is lost: unplugged\r\n")
        refused = await connect(bridge, "socket")
        assert b"the device is not there: unplugged" in await refused.rest()
        assert line.retried == 1
        line.tell(State("open"))
        await viewer.until(b"\r\nfastflight: the device is open\r\n")
        for client in (writer, refused, await writing(bridge, "rfc2217"), viewer):
            await client.close()

    run(test)


def test_closing_under_load_ends_everybody() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
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

    run(test)


@pytest.mark.parametrize("turns", range(5))
def test_closing_while_a_crowd_comes_in_leaves_no_connection_open(turns: int) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as crowd:
            async with bridged(MemoryLine()) as bridge:
                for port in (bridge.ports.rfc2217, bridge.ports.socket, bridge.ports.viewers):
                    for _ in range(50):  # the system connects them; the loop has not seen them yet
                        crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(turns):
                    await asyncio.sleep(0)
            gc.collect()  # a socket that was dropped complains

    asyncio.run(main())


@pytest.mark.parametrize("takeover", [False, True])
def test_closing_gives_the_device_to_nobody_any_more_and_everybody_a_word(takeover: bool) -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
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

    run(test, takeover=takeover)


def test_idle_sessions_wake_nobody_up() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as device:
            url = f"socket://127.0.0.1:{device.getsockname()[1]}"
            bridge = Bridge(LineFront(Upstream(parse_url(url))), Ports(rfc2217=0, socket=0, viewers=0))
            device.setblocking(False)
            loop = asyncio.get_running_loop()
            async with bridge:
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

    asyncio.run(main())


async def _flood(client: Client) -> None:
    try:
        while True:
            await client.send(b"x" * 65536)
    except ConnectionError:
        pass


def test_a_port_is_taken_once() -> None:
    async def test(line: MemoryLine, bridge: Bridge) -> None:
        with pytest.raises(TransportError, match="choose another one"):
            async with bridged(MemoryLine(), Ports(rfc2217=0, socket=bridge.ports.socket)):
                pass

    run(test)
