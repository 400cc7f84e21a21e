"""One suite for every transport: what a `Port` promises, whatever is behind it, from threads and from event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.transport import Address, LineSettings, Port, SerialControl
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.port_tap import PortTap
from fastflight.transport.tap import Tap
from tests.support.ports import open_port
from tests.transport.peers import GOODBYE, PEERS
from tests.transport.port_reading import PATIENCE, aread_exactly, read_exactly
from tests.transport.rfc2217_peers import rfc2217_peer
from tests.transport.webrepl_peers import PEERS as WEBREPL_PEERS
from tests.transport.webrepl_peers import client_tls

# For waits that are to fail.
SHORT = 0.05

ROUNDS = 1000

EVERY_BYTE = bytes(range(256))
LARGE = EVERY_BYTE * 4096

KINDS = PEERS | {"rfc2217": rfc2217_peer} | WEBREPL_PEERS

Kind = Callable[[bool], AbstractContextManager[Address]]


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    if request.param == "wss":
        monkeypatch.setattr(ssl, "create_default_context", client_tls)
    return KINDS[request.param]


@pytest.fixture
def port(kind: Kind) -> Iterator[Port]:
    with kind(True) as address:
        opened = open_port(address, PATIENCE)
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture
def deaf(kind: Kind) -> Iterator[Port]:
    with kind(False) as address:
        opened = open_port(address, PATIENCE)
        try:
            yield opened
        finally:
            opened.close()


def test_many_writes_come_back(port: Port) -> None:
    for start in range(0, len(LARGE) // 4, 2048):
        port.write(LARGE[start : start + 2048], PATIENCE)
        assert read_exactly(port, 2048) == LARGE[start : start + 2048]


async def test_a_megabyte_both_ways_on_a_loop(port: Port) -> None:
    data, _ = await asyncio.gather(aread_exactly(port, len(LARGE)), port.awrite(LARGE, PATIENCE))
    assert data == LARGE


def test_silence_is_a_timeout(port: Port) -> None:
    with pytest.raises(TransportTimeout, match="sent nothing for 0.05 s"):
        asyncio.run(port.aread(SHORT))
    port.write(b"still here", PATIENCE)
    assert read_exactly(port, 10) == b"still here"


def test_a_peer_that_takes_nothing_is_a_timeout(deaf: Port) -> None:
    async def main() -> None:
        for _ in range(64):
            await deaf.awrite(LARGE, SHORT)

    with pytest.raises(TransportTimeout, match="took no byte"):
        asyncio.run(main())


def test_a_peer_that_hangs_up_is_closed(port: Port) -> None:
    async def main() -> None:
        await port.awrite(GOODBYE, PATIENCE)
        while True:
            await port.aread(PATIENCE)

    with pytest.raises(TransportClosed):
        asyncio.run(main())


async def test_a_cancelled_read_loses_nothing(port: Port) -> None:
    waiting = asyncio.ensure_future(port.aread(PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await port.awrite(b"later", PATIENCE)
    assert await aread_exactly(port, 5) == b"later"


async def test_a_read_that_times_out_as_bytes_come_loses_none(port: Port) -> None:
    """The echo comes back at about the time at which the read gives up, again and again."""
    received = b""
    for number in range(ROUNDS):
        await port.awrite(bytes([number % 256]), PATIENCE)
        try:
            received += await port.aread((number % 40) * 5e-6)
        except TransportTimeout:
            pass
    assert received + await aread_exactly(port, ROUNDS - len(received)) == bytes(
        number % 256 for number in range(ROUNDS)
    )


async def test_a_reader_that_comes_before_a_cancelled_one_is_gone_gets_what_comes(port: Port) -> None:
    gone = asyncio.ensure_future(port.aread(PATIENCE))
    await asyncio.sleep(0)
    gone.cancel()
    writing = asyncio.ensure_future(port.awrite(b"!", PATIENCE))
    here = await port.aread(PATIENCE)  # in this turn of the loop: the other one ends in the next
    await writing
    assert here == b"!"


def test_the_port_changes_hands_while_its_loop_runs(port: Port) -> None:
    def on_a_thread(data: bytes) -> bytes:
        port.write(data, PATIENCE)
        return read_exactly(port, len(data))

    async def on_a_loop(data: bytes) -> bytes:
        await port.awrite(data, PATIENCE)
        return await aread_exactly(port, len(data))

    async def main() -> None:
        for turn in range(3):
            assert await on_a_loop(b"loop %d" % turn) == b"loop %d" % turn
            assert await asyncio.to_thread(on_a_thread, b"thread %d" % turn) == b"thread %d" % turn
            other = await asyncio.to_thread(lambda: asyncio.run(on_a_loop(b"another loop")))
            assert other == b"another loop"

    asyncio.run(main())


async def test_closing_from_a_thread_wakes_a_task_that_waits(port: Port) -> None:
    waiting = asyncio.ensure_future(port.aread(PATIENCE))
    await asyncio.sleep(0)
    await asyncio.to_thread(port.close)
    async with asyncio.timeout(PATIENCE / 2):
        with pytest.raises(TransportClosed):
            await waiting


async def test_a_loop_hears_the_next_port_after_a_thread_closed_the_last(kind: Kind) -> None:
    """The next one has the same descriptor, as a rule."""
    for _ in range(3):
        with kind(True) as address:
            port = await asyncio.to_thread(open_port, address, PATIENCE)
            try:
                await port.awrite(EVERY_BYTE, PATIENCE)
                assert await aread_exactly(port, 256) == EVERY_BYTE
            finally:
                await asyncio.to_thread(port.close)


def test_closing_twice_is_allowed_and_ends_the_port(port: Port) -> None:
    port.close()
    port.close()
    with pytest.raises(TransportClosed):
        asyncio.run(port.aread(SHORT))
    with pytest.raises(TransportClosed):
        asyncio.run(port.awrite(b"x", SHORT))


def test_an_address_can_be_opened_again(kind: Kind) -> None:
    with kind(False) as address:
        for _ in range(2):
            open_port(address, PATIENCE).close()


async def test_listening_gives_way_at_any_moment_and_who_reads_next_gets_the_rest(port: Port) -> None:
    tap = Tap()
    port.tapping, reader = PortTap(tap), tap.reader()
    data = bytearray()

    async def hear() -> None:
        for item in await reader.atake(PATIENCE):
            assert isinstance(item, Chunk)
            data.extend(item.data if item.direction == "rx" else b"")

    for number in range(20):
        listening = asyncio.ensure_future(port.alisten())
        await port.awrite(EVERY_BYTE * 2, PATIENCE)
        while len(data) < 512 * number + 1:
            await hear()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        while len(data) < 512 * (number + 1):
            if tap.next_seq == reader.next_seq:
                await port.aread(PATIENCE)
            await hear()
    assert data == EVERY_BYTE * 40


async def test_listening_ends_with_the_line(port: Port) -> None:
    port.tapping = PortTap(Tap())
    listening = asyncio.ensure_future(port.alisten())
    await port.awrite(GOODBYE, PATIENCE)
    with pytest.raises(TransportClosed):
        await listening


async def test_a_tap_sees_what_crosses_the_port(port: Port) -> None:
    tap = Tap()
    port.tapping, reader = PortTap(tap), tap.reader()
    await port.awrite(b"one", PATIENCE)
    assert await aread_exactly(port, 3) == b"one"
    first, *rest = [(chunk.direction, chunk.data) for chunk in reader.rest() if isinstance(chunk, Chunk)]
    assert first == ("tx", b"one")
    assert b"".join(data for direction, data in rest if direction == "rx") == b"one"


def test_a_guard_goes_before_each_write_and_each_control(port: Port) -> None:
    def refuse() -> None:
        raise TransportClosed("this server does not own the device any more")

    tap = Tap()
    port.tapping = PortTap(tap, refuse)
    writes = [port.awrite(b"late", PATIENCE), port.adrain(PATIENCE)]
    if isinstance(port.port, SerialControl):
        writes += [
            port.aconfigure(LineSettings(baud=9600), PATIENCE),
            port.aassign(PATIENCE, dtr=True),
            port.apurge(PATIENCE, unsent=True),
        ]
    for write in writes:
        with pytest.raises(TransportClosed, match="does not own"):
            asyncio.run(write)
    # The tap has not seen what was never sent.
    assert tap.next_seq == 0
    port.tapping = None
    port.write(b"later", PATIENCE)
    assert read_exactly(port, 5) == b"later"
