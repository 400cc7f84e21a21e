"""Ports behind a server: opened without touching them, set, read while they are set, and written without tearing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from fastflight.concurrency import Shard
from fastflight.errors import RequestError, TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.rfc2217 import LINE_NAMES, Purge, Setting
from fastflight.protocol.rfc2217_server import Rfc2217Server
from fastflight.protocol.telnet import Option, Telnet, TelnetCode, TelnetData
from fastflight.transport import LineSettings, ModemLines, SerialControl, parse_url
from fastflight.transport.rfc2217 import Rfc2217Address, Rfc2217Port
from fastflight.transport.socket import SocketAddress
from tests.support.ports import ThreadPort, open_port
from tests.transport.port_reading import PATIENCE, aread_exactly, read_exactly
from tests.transport.rfc2217_peers import Rfc2217Peer, running_peer

# For waits that are to fail.
SHORT = 0.05
# For one that is to fail though what else was asked has been answered by then, which is the machine's affair.
ANSWERED_BY = 0.5

# More than a connection's buffers hold.
LARGE = 16 << 20

# Sent faster than it is understood: there is always more of it to read.
FLOOD = b"\xff\xf1" * (1 << 20)

BINARY = frozenset({Option.BINARY})


@pytest.fixture
def peer() -> Iterator[Rfc2217Peer]:
    with running_peer() as peer:
        yield peer


@pytest.fixture
def port(peer: Rfc2217Peer) -> Iterator[Rfc2217Port]:
    opened = open_peer(peer)
    peer.asked.clear()
    yield opened
    opened.close()


def open_peer(peer: Rfc2217Peer, options: str = "") -> Rfc2217Port:
    port = open_port(parse_url(f"rfc2217://{peer.address}{options}"), PATIENCE)
    assert isinstance(port.port, Rfc2217Port)
    return port


@contextmanager
def connected() -> Iterator[tuple[socket.socket, ThreadPort]]:
    """A port that has begun nothing, and the server's end of its connection."""
    with Shard("port") as shard, socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = SocketAddress("here", *listener.getsockname())
        port = shard.submit(endpoint.aconnect(lambda: Rfc2217Port("here"), PATIENCE)).result(PATIENCE)
        with listener.accept()[0] as theirs:
            yield theirs, ThreadPort(port, shard)
            port.close()


def test_urls() -> None:
    assert parse_url("rfc2217://[::1]:2217") == Rfc2217Address("rfc2217://[::1]:2217", "::1", 2217)
    address = parse_url("rfc2217://board.local:2217?baud=921600&dtr=0&rts=1")
    assert isinstance(address, Rfc2217Address)
    assert (address.host, address.port) == ("board.local", 2217)
    assert (address.baud, address.dtr, address.rts) == (921600, False, True)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("rfc2217://host", "host and port are both needed"),
        ("rfc2217://host:2217/board", "may follow the port"),
        ("rfc2217://host:2217?baud=fast", "baud must be a whole number, not 'fast'"),
        ("rfc2217://host:2217?dtr=on", "dtr must be 0 or 1"),
        ("rfc2217://host:2217?bauds=1", "unknown option 'bauds'.*Did you mean 'baud'"),
    ],
)
def test_what_is_wrong_with_a_url(url: str, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        parse_url(url)


def test_opening_asks_and_changes_nothing(peer: Rfc2217Peer) -> None:
    before = dict(peer.in_force)
    port = open_peer(peer)
    port.close()
    assert isinstance(port.port, SerialControl)
    assert port.settings == LineSettings(9600, 8, "N", 1.0)
    assert port.bytes_per_second == 960.0
    assert peer.in_force == before
    assert not [event for event in peer.asked if isinstance(event, Purge)]
    assert {event.name for event in peer.asked if isinstance(event, Setting)} == set(LINE_NAMES)


def test_opening_with_options(peer: Rfc2217Peer) -> None:
    port = open_peer(peer, "?baud=230400&dtr=0&rts=0")
    port.close()
    assert port.settings.baud == 230400
    assert (peer.in_force["dtr"], peer.in_force["rts"]) == (False, False)


def test_opening_at_a_speed_that_cannot_be(peer: Rfc2217Peer) -> None:
    peer.keeps.add("baud")
    with pytest.raises(TransportError, match=f"rfc2217://{peer.address}.*: the server did not do as it was asked"):
        open_peer(peer, "?baud=12000000")


def test_a_server_that_does_not_tell_its_settings(peer: Rfc2217Peer) -> None:
    peer.mute.add("baud")
    port = open_peer(peer)
    port.close()
    assert port.bytes_per_second is None
    assert port.settings == LineSettings()


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, number = listener.getsockname()
        with pytest.raises(TransportTimeout, match="did not answer whether it speaks RFC 2217"):
            open_port(parse_url(f"rfc2217://{host}:{number}"), SHORT)


def test_a_server_that_hangs_up_in_the_middle() -> None:
    with connected() as (theirs, port):
        theirs.sendall(b"port is in use\r\n")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(TransportClosed):
            asyncio.run(port.abegin([], PATIENCE))


def test_bytes_per_second_counts_every_bit(port: Rfc2217Port) -> None:
    asyncio.run(port.aconfigure(LineSettings(1200, 7, "E", 2.0), PATIENCE))
    assert port.bytes_per_second == 1200 / 11


def test_settings_and_lines(peer: Rfc2217Peer, port: Rfc2217Port) -> None:
    wanted = LineSettings(921600, 7, "O", 1.5)

    async def main() -> ModemLines:
        await port.aconfigure(wanted, PATIENCE)
        await port.aassign(PATIENCE, dtr=False, sending_break=True)
        await port.apurge(PATIENCE, received=True, unsent=True)
        return await port.amodem(PATIENCE)

    assert asyncio.run(main()) == ModemLines(cts=True, cd=True)
    assert port.settings == wanted
    assert Setting("dtr", False) in peer.asked
    assert Purge(True, True) in peer.asked
    assert Setting("rts", True) not in peer.asked


def test_what_the_server_does_not_answer(peer: Rfc2217Peer, port: Rfc2217Port) -> None:
    peer.mute.add("dtr")
    with pytest.raises(TransportTimeout, match=r"did not answer dtr=True$"):
        asyncio.run(port.aassign(ANSWERED_BY, dtr=True, rts=True))


def test_purging_drops_what_is_on_its_way(port: Rfc2217Port) -> None:
    port.write(b"old", PATIENCE)
    asyncio.run(port.apurge(PATIENCE, received=True))
    port.write(b"new", PATIENCE)
    assert read_exactly(port, 3) == b"new"


def test_data_before_an_answer_is_there_to_be_read(port: Rfc2217Port) -> None:
    port.write(b"talk", PATIENCE)
    asyncio.run(port.amodem(PATIENCE))
    port.write(b"ative", PATIENCE)
    assert read_exactly(port, 9) == b"talkative"


def test_one_reads_while_others_write_and_control(port: Rfc2217Port) -> None:
    data = bytes(range(256)) * 512

    async def control() -> None:
        for baud in range(1, 200):
            await port.aconfigure(LineSettings(baud), PATIENCE)

    async def main() -> bytes:
        received, _, _ = await asyncio.gather(aread_exactly(port, len(data)), port.awrite(data, PATIENCE), control())
        return received

    assert asyncio.run(main()) == data
    assert port.settings.baud == 199


def test_the_answer_to_a_cancelled_call_is_not_taken_for_that_to_the_next() -> None:
    server = Rfc2217Server()

    async def main(theirs: socket.socket, port: Rfc2217Port) -> None:
        def answer() -> None:
            asked: list[Setting] = []
            while not asked:
                asked += [event for event in server.feed(theirs.recv(1000)) if isinstance(event, Setting)]
            server.answer(asked[0])
            theirs.sendall(server.take())

        cancelled = asyncio.ensure_future(port.aassign(PATIENCE, dtr=False))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        answer()
        following = asyncio.ensure_future(port.aassign(PATIENCE, dtr=True))
        await asyncio.sleep(0)
        answer()
        await following

    with connected() as (theirs, port):
        theirs.sendall(server.take())
        # On the loop of the port, where the first call has sent its request before it is cancelled.
        asyncio.run_coroutine_threadsafe(main(theirs, port), port._loop).result(PATIENCE)


def test_a_server_that_wants_no_data_now_gets_none() -> None:
    server = Rfc2217Server()
    server.suspend()
    with connected() as (theirs, port):
        theirs.sendall(server.take())
        with pytest.raises(TransportTimeout):
            port.read(SHORT)
        with pytest.raises(TransportTimeout, match="took no byte for 0.05 s"):
            port.write(b"x", SHORT)
        server.resume()
        theirs.sendall(server.take())
        port.write(b"y", PATIENCE)
        heard: list[object] = []
        while TelnetData(b"y") not in heard:
            heard += server.feed(theirs.recv(100))
        assert [event for event in heard if isinstance(event, TelnetData)] == [TelnetData(b"y")]


@contextmanager
def flooding(stream: socket.socket, data: bytes) -> Iterator[None]:
    """Something sends `data` over and over."""
    stopping = threading.Event()

    def flood() -> None:
        with suppress(OSError):
            while not stopping.is_set():
                stream.sendall(data)

    thread = threading.Thread(target=flood)
    thread.start()
    yield
    stopping.set()
    stream.close()
    thread.join()


def test_a_server_that_floods_and_agrees_to_nothing_cannot_be_opened() -> None:
    """Whoever opens a line tries it again after a `TransportError`, and ends with any other."""

    def flood() -> None:
        with listener.accept()[0] as theirs, suppress(OSError):
            while True:
                theirs.sendall(bytes(1 << 20))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=flood)
        thread.start()
        with pytest.raises(TransportError, match="sent .* bytes, and no answer"):
            open_port(parse_url(f"rfc2217://127.0.0.1:{listener.getsockname()[1]}"), PATIENCE)
        thread.join()


def test_a_server_that_talks_only_telnet_is_silent() -> None:
    with connected() as (theirs, port), flooding(theirs, FLOOD):
        with pytest.raises(TransportTimeout, match="sent nothing for 0.05 s"):
            port.read(SHORT)
        port.close()


def test_a_server_that_talks_only_telnet_leaves_the_loop_to_others() -> None:
    async def main(port: Rfc2217Port) -> None:
        reading = asyncio.ensure_future(port.aread(PATIENCE))
        fed_twice = asyncio.Event()

        def look() -> None:
            if port._fed < 2:
                asyncio.get_running_loop().call_soon(look)
            else:
                fed_twice.set()

        look()
        await fed_twice.wait()
        assert not reading.done()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading

    with connected() as (theirs, port), flooding(theirs, FLOOD):
        asyncio.run(main(port))
        port.close()


@pytest.mark.parametrize("odd", [0, 1])
def test_a_write_cut_off_between_two_bytes_does_not_tear_the_next(odd: int) -> None:
    with connected() as (theirs, port):
        # One byte more or less in front: the system cuts where it likes.
        with pytest.raises(TransportTimeout):
            port.write(b"x" * odd + b"\xff" * LARGE, SHORT)
        received = bytearray()

        def drain() -> None:
            while not received.endswith(b"end"):
                received.extend(theirs.recv(1 << 20))

        thread = threading.Thread(target=drain)
        thread.start()
        port.write(b"end", PATIENCE)
        thread.join()
    (event,) = Telnet(BINARY, BINARY).feed(bytes(received))
    assert isinstance(event, TelnetData)
    assert event.data.strip(b"x\xff") == b"end"


def test_an_answer_to_the_server_comes_whole_while_a_write_fills_the_line() -> None:
    telnet = Telnet(BINARY, BINARY)

    async def main(theirs: socket.socket, port: Rfc2217Port) -> bytes:
        writing = asyncio.ensure_future(port.awrite(b"\xff" * LARGE, PATIENCE))
        await asyncio.sleep(0)
        theirs.sendall(bytes([0xFF, TelnetCode.DO, 200]) + b"data")
        assert await port.aread(PATIENCE) == b"data"
        theirs.setblocking(False)
        loop, received, refusal = asyncio.get_running_loop(), bytearray(), bytes([0xFF, TelnetCode.WONT, 200])
        while len(received) < 2 * LARGE + len(refusal):
            received += await loop.sock_recv(theirs, 1 << 20)
        await writing
        assert received.count(refusal) == 1
        return bytes(received)

    with connected() as (theirs, port):
        received = asyncio.run(main(theirs, port))
    data = b"".join(event.data for event in telnet.feed(received) if isinstance(event, TelnetData))
    assert data == b"\xff" * LARGE
