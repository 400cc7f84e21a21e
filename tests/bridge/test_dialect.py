"""What the two kinds of port speak with one client, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fastflight.bridge import dialect as dialects
from fastflight.bridge.dialect import Dialect, Raw, Rfc2217
from fastflight.errors import TransportError
from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    LineMask,
    LineState,
    Message,
    NotifyLine,
    NotifyModem,
    Resume,
    Setting,
    Suspend,
    decode,
    encode,
)
from fastflight.protocol.telnet import Option, Subnegotiation, Telnet
from fastflight.transport import ModemLines
from tests.bridge.memory_line import MemoryControl, MemoryLine

EVERY_BYTE = bytes(range(256)) * 2


class DialectPeer:
    """A client's telnet side, and what it was told."""

    def __init__(self) -> None:
        options = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
        self.telnet = Telnet(options, options)
        self.told: list[Message | None] = []
        self.news = asyncio.Event()

    def hear(self, data: bytes) -> None:
        for event in self.telnet.feed(data):
            if isinstance(event, Subnegotiation):
                self.told.append(decode(event.payload, SERVER))
                self.news.set()

    def say(self, *messages: Message) -> bytes:
        for message in messages:
            self.telnet.subnegotiate(Option.COM_PORT, encode(message, CLIENT))
        return self.telnet.take()


def talk(line: MemoryLine, test: Callable[[Rfc2217, DialectPeer], Awaitable[None]]) -> None:
    """A client that agreed on RFC 2217, on the line."""

    async def run() -> None:
        dialect, peer = Rfc2217(), DialectPeer()
        peer.hear(dialect.greeting())
        await dialect.carry(peer.telnet.take(), line, peer.hear)
        peer.told.clear()
        await test(dialect, peer)

    asyncio.run(run())


def test_raw_bytes_stay_as_they_are() -> None:
    async def run(dialect: Dialect) -> None:
        line = MemoryLine()
        await dialect.carry(EVERY_BYTE, line, lambda data: None)
        assert line.written == EVERY_BYTE

    dialect = Raw()
    assert dialect.greeting() == b""
    assert dialect.encode(EVERY_BYTE) == EVERY_BYTE
    asyncio.run(run(dialect))


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_data_and_requests_keep_their_order(size: int) -> None:
    control = MemoryControl()
    line = MemoryLine(control=control)
    written: list[int] = []
    control.aconfigure = _noting(control, line, written)  # type: ignore[method-assign]

    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        wire = peer.telnet.encode(EVERY_BYTE) + peer.say(Setting("baud", 9600)) + peer.telnet.encode(EVERY_BYTE)
        for start in range(0, len(wire), size):
            await dialect.carry(wire[start : start + size], line, peer.hear)
        assert peer.told == [Setting("baud", 9600)]

    talk(line, test)
    assert line.written == EVERY_BYTE * 2
    assert written == [len(EVERY_BYTE)]


def _noting(control: MemoryControl, line: MemoryLine, written: list[int]) -> Callable[..., Awaitable[None]]:
    configure = control.aconfigure

    async def note(*arguments: object) -> None:
        written.append(len(line.written))
        await configure(*arguments)  # type: ignore[arg-type]

    return note


def test_a_client_that_asks_for_states_is_told() -> None:
    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        await dialect.carry(peer.say(NotifyModem(None), NotifyLine(None)), line, peer.hear)
        modem, state = peer.told
        assert isinstance(modem, NotifyModem)
        assert state == NotifyLine(LineState.HOLDING_EMPTY | LineState.SHIFT_EMPTY)

    line = MemoryLine()
    talk(line, test)


def test_masks_are_acknowledged() -> None:
    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        await dialect.carry(peer.say(LineMask(LineState(0xFF))), line, peer.hear)
        assert peer.told == [LineMask(LineState(0xFF))]

    line = MemoryLine()
    talk(line, test)


def test_a_client_may_suspend_what_comes_to_it() -> None:
    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        for message, suspended in ((Suspend(), True), (Resume(), False)):
            await dialect.carry(peer.say(message), line, peer.hear)
            assert dialect.suspended is suspended

    line = MemoryLine()
    talk(line, test)


def test_telnets_own_break_reaches_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.bridge.control.BREAK_SECONDS", 0.0)
    control = MemoryControl()
    line = MemoryLine(control=control)

    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        await dialect.carry(b"\xff\xf3", line, peer.hear)

    talk(line, test)
    assert control.told == [{"break": True}, {"break": False}]


def test_a_port_without_modem_lines_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "MODEM_SECONDS", 0.0)
    asked = []

    class Without(MemoryControl):
        async def amodem(self, timeout: float) -> ModemLines:
            asked.append(timeout)
            raise TransportError("the port has no modem lines")

    line = MemoryLine(control=Without())

    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        watching = asyncio.create_task(dialect.watch(line, peer.hear))
        for _ in range(100):
            await asyncio.sleep(0)
        watching.cancel()
        assert len(asked) == 1

    talk(line, test)


def test_a_client_is_told_when_a_modem_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "MODEM_SECONDS", 0.0)
    control = MemoryControl()
    line = MemoryLine(control=control)

    async def test(dialect: Rfc2217, peer: DialectPeer) -> None:
        watching = asyncio.create_task(dialect.watch(line, peer.hear))
        control.lines = replace(control.lines, cd=True)
        peer.news.clear()
        await peer.news.wait()
        watching.cancel()
        assert len(peer.told) == 1

    talk(line, test)
